//! Every error, note and other text of the program as one list, `messages.snap`, for reading in
//! one go, and for reviews of changed texts.
//!
//! The list comes from the sources of all crates that are shipped, so that no text can be missing.
//! `INSTA_UPDATE=always cargo test -p flowgauge --test messages` writes it again.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Crates whose texts no user of the command, the agent or the libraries sees.
const NOT_SHIPPED: [&str; 2] = ["lab", "dpdk-peers"];

#[test]
fn messages() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut list = String::new();
    for file in sources(crates) {
        let mut texts = Vec::new();
        collect(fs::read_to_string(&file).unwrap().parse().unwrap(), &mut texts);
        texts.retain(|text| is_said(text));
        if !texts.is_empty() {
            writeln!(list, "{}", file.strip_prefix(crates).unwrap().display()).unwrap();
            for text in texts {
                writeln!(list, "    {}", text.replace('\n', "\\n")).unwrap();
            }
        }
    }
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("messages", list);
    });
}

/// Every file of Rust in the crates' `src`, in order.
fn sources(crates: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.collect::<Vec<PathBuf>>()
    };
    let mut files = Vec::new();
    let mut folders = entries(crates);
    folders.retain(|path| !NOT_SHIPPED.iter().any(|name| path.ends_with(name)));
    let mut folders: Vec<PathBuf> = folders.iter().map(|path| path.join("src")).collect();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files.retain(|path| !path.ends_with("tests.rs"));
    files.sort();
    files
}

/// Texts after these are only for developers.
const ASSERTIONS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "expect",
    "panic",
    "unreachable",
];

/// The string literals of code outside tests, and of error attributes.
fn collect(tokens: TokenStream, texts: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    texts.push(text.value());
                }
            }
            TokenTree::Group(group) => collect(group.stream(), texts),
            TokenTree::Ident(name) if ASSERTIONS.iter().any(|assertion| name == assertion) => {
                tokens.next_if(|next| is_mark(next, '!'));
                tokens.next_if(|next| matches!(next, TokenTree::Group(_)));
            }
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                tokens.next_if(|next| is_mark(next, '!'));
                let Some(TokenTree::Group(attribute)) = tokens.next_if(is_brackets) else {
                    continue;
                };
                let text = attribute.stream().to_string().replace(' ', "");
                if text.starts_with("error(") {
                    collect(attribute.stream(), texts);
                } else if TESTS.iter().any(|test| text.starts_with(test)) {
                    skip_item(&mut tokens);
                }
            }
            _ => {}
        }
    }
}

/// The beginnings of test attributes.
const TESTS: [&str; 3] = ["cfg(test", "cfg(any(test", "cfg(all(test"];

fn is_mark(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == wanted)
}

fn is_brackets(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket)
}

/// Skips an item, which ends with a block or a semicolon.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let _ = tokens.find(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_mark(token, ';'),
    });
}

/// Whether it is a message: a few words, and not code.
fn is_said(text: &str) -> bool {
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase());
    text.split(' ').filter(is_word).count() > 1
}

#[test]
fn texts_are_found_where_they_stand() {
    let code = r#"
        //! a comment of words
        #[error("the problem is {0}")] struct Problem;
        #[expect(clippy::all, reason = "it may well be")]
        fn say() -> String { let name = "short"; format!("so many words\n{}", other("and these ones")) }
        #[cfg(test)] mod tests { fn test() { "what is tested here" } }
        fn check() { assert!(true, "it is so"); Some(1).expect("there is one") }
        const LAST: &str = "the last words";
    "#;
    let mut texts = Vec::new();
    collect(code.parse().unwrap(), &mut texts);
    texts.retain(|text| is_said(text));
    assert_eq!(
        texts,
        ["the problem is {0}", "so many words\n{}", "and these ones", "the last words"]
    );
}
