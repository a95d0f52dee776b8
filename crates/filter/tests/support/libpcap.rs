//! libpcap, loaded at run time if it is installed.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use flowgauge_core::packet::LinkType;
use libloading::{Library, Symbol};

/// Number of captures opened so far, for their file names.
static OPENED: AtomicU32 = AtomicU32::new(0);

#[repr(C)]
struct CompiledFilter {
    length: u32,
    instructions: *mut u8,
}

#[repr(C)]
struct PacketHeader {
    seconds: i64,
    microseconds: i64,
    captured: u32,
    wire: u32,
}

/// The library; `None` if it is not installed.
pub(crate) struct Libpcap {
    library: Library,
}

/// A capture of one link type, opened as `tcpdump -r` opens it.
pub(crate) struct Capture<'a> {
    libpcap: &'a Libpcap,
    handle: *mut u8,
}

/// A filter that libpcap compiled, or `None` for one that rejects all packets.
pub(crate) struct Compiled<'a> {
    libpcap: &'a Libpcap,
    filter: Option<CompiledFilter>,
}

impl Libpcap {
    pub(crate) fn load() -> Option<Self> {
        let names = ["libpcap.so.0.8", "libpcap.so.1"];
        // SAFETY: loading libpcap runs no initialization that affects this process.
        let library = names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        Some(Self { library })
    }

    pub(crate) fn version(&self) -> String {
        // SAFETY: the signature is that of pcap_lib_version(3PCAP), which returns a static string.
        unsafe {
            let version: Symbol<'_, unsafe extern "C" fn() -> *const c_char> =
                self.library.get(b"pcap_lib_version\0").unwrap();
            CStr::from_ptr(version()).to_string_lossy().into_owned()
        }
    }

    /// An empty capture of this link type.
    pub(crate) fn open(&self, link: LinkType) -> Capture<'_> {
        let directory = std::env::temp_dir();
        let count = OPENED.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("flowgauge-{}-{count}.pcap", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, u32::from(link.0)] {
            file.write_all(&word.to_ne_bytes()).unwrap();
        }
        drop(file);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let mut error: [c_char; 256] = [0; 256];
        // SAFETY: the signature is that of pcap_open_offline(3PCAP); `error` has the
        // PCAP_ERRBUF_SIZE bytes that it may write.
        let handle = unsafe {
            let open: Symbol<'_, unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut u8> =
                self.library.get(b"pcap_open_offline\0").unwrap();
            open(name.as_ptr(), error.as_mut_ptr())
        };
        std::fs::remove_file(&path).unwrap();
        assert!(!handle.is_null(), "libpcap opens a capture of link type {}", link.0);
        Capture { libpcap: self, handle }
    }
}

impl Capture<'_> {
    /// Compiles an expression, with libpcap's optimizer or without.
    pub(crate) fn compile(&self, expression: &str, optimize: bool) -> Result<Compiled<'_>, String> {
        let text = CString::new(expression).unwrap();
        let mut filter = CompiledFilter { length: 0, instructions: std::ptr::null_mut() };
        // SAFETY: the signatures are those of pcap_compile(3PCAP) and pcap_geterr(3PCAP); the
        // handle is open as long as `self` lives.
        unsafe {
            let compile: Symbol<
                '_,
                unsafe extern "C" fn(
                    *mut u8,
                    *mut CompiledFilter,
                    *const c_char,
                    c_int,
                    u32,
                ) -> c_int,
            > = self.libpcap.library.get(b"pcap_compile\0").unwrap();
            let error: Symbol<'_, unsafe extern "C" fn(*mut u8) -> *const c_char> =
                self.libpcap.library.get(b"pcap_geterr\0").unwrap();
            // tcpdump uses netmask 0 for captures.
            let optimize = c_int::from(optimize);
            if compile(self.handle, &raw mut filter, text.as_ptr(), optimize, 0) == 0 {
                return Ok(Compiled { libpcap: self.libpcap, filter: Some(filter) });
            }
            let error = CStr::from_ptr(error(self.handle)).to_string_lossy().into_owned();
            if error == "expression rejects all packets" {
                return Ok(Compiled { libpcap: self.libpcap, filter: None });
            }
            Err(error)
        }
    }
}

impl Compiled<'_> {
    pub(crate) fn matches(&self, captured: &[u8], wire: u32) -> bool {
        let Some(filter) = &self.filter else { return false };
        let captured_length = captured.len() as u32;
        let header = PacketHeader { seconds: 0, microseconds: 0, captured: captured_length, wire };
        // SAFETY: the signature is that of pcap_offline_filter(3PCAP); the header says how many
        // bytes may be read.
        unsafe {
            let run: Symbol<
                '_,
                unsafe extern "C" fn(
                    *const CompiledFilter,
                    *const PacketHeader,
                    *const u8,
                ) -> c_int,
            > = self.libpcap.library.get(b"pcap_offline_filter\0").unwrap();
            run(filter, &raw const header, captured.as_ptr()) != 0
        }
    }
}

impl Drop for Compiled<'_> {
    fn drop(&mut self) {
        if let Some(filter) = &mut self.filter {
            // SAFETY: the signature is that of pcap_freecode(3PCAP); compiled and not freed yet.
            unsafe {
                let free: Symbol<'_, unsafe extern "C" fn(*mut CompiledFilter)> =
                    self.libpcap.library.get(b"pcap_freecode\0").unwrap();
                free(filter);
            }
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // SAFETY: the signature is that of pcap_close(3PCAP); opened and not closed yet.
        unsafe {
            let close: Symbol<'_, unsafe extern "C" fn(*mut u8)> =
                self.libpcap.library.get(b"pcap_close\0").unwrap();
            close(self.handle);
        }
    }
}
