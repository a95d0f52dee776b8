//! Error codes and texts, and the panic barrier of every entry point.

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{FG_EDEAD, FG_EINVAL};

thread_local! {
    // Neither allocates nor needs dropping, so that a failing push may use it.
    static LAST: Cell<*const c_char> = const { Cell::new(c"".as_ptr()) };
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Why a call failed: code and text.
#[derive(Debug)]
pub(crate) struct Problem {
    code: c_int,
    text: Cow<'static, CStr>,
}

impl Problem {
    /// A problem with a static text, which needs no allocation.
    pub(crate) fn fixed(code: c_int, text: &'static CStr) -> Self {
        Self { code, text: Cow::Borrowed(text) }
    }

    pub(crate) fn new(code: c_int, text: String) -> Self {
        Self { code, text: Cow::Owned(c_text(text)) }
    }

    pub(crate) fn argument(what: &'static CStr) -> Self {
        Self::fixed(FG_EINVAL, what)
    }

    /// Stores the text for `fg_error`; returns the code.
    pub(crate) fn keep(self) -> c_int {
        LAST.set(match self.text {
            Cow::Borrowed(text) => text.as_ptr(),
            Cow::Owned(text) => TEXT.with_borrow_mut(|kept| {
                *kept = text;
                kept.as_ptr()
            }),
        });
        self.code
    }
}

/// The text of the last failure on this thread.
pub(crate) fn last() -> *const c_char {
    LAST.get()
}

/// Converts a text for C: up to its first zero byte.
pub(crate) fn c_text(text: String) -> CString {
    let mut bytes = text.into_bytes();
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    CString::new(bytes).unwrap_or_default()
}

/// The message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a defect stopped it: {}; please report this", text.unwrap_or("no reason given"))
}

/// Runs an entry point, and converts failures and panics to codes.
pub(crate) fn entry(run: impl FnOnce() -> Result<c_int, Problem>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(code)) => code,
        Ok(Err(problem)) => problem.keep(),
        Err(panic) => Problem::new(FG_EDEAD, words(&*panic)).keep(),
    }
}
