//! Tests with C programs: the library is linked, its exports are checked, and it runs under the
//! available tools.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use flowgauge_capture::Captures;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, Plan};

/// The build folder.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
    fs::create_dir_all(&place).unwrap();
    link(&place);
    place
});

/// A path in the crate's folder.
fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Links the shared library from the static one that cargo built for this test, as `make install`
/// does.
fn link(place: &Path) {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let archives = fs::read_dir(deps).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap();
        let is_ours = name.starts_with("libflowgauge_capi-")
            && path.extension().is_some_and(|end| end == "a");
        is_ours.then(|| (path.metadata().unwrap().modified().unwrap(), path))
    });
    let (_, archive) = archives.max().unwrap();
    let library = place.join("libflowgauge.so.1");
    done(Command::new(here("link.sh")).arg(archive).arg(&library));
    fs::copy(library, place.join("libflowgauge.so")).unwrap();
}

/// Compiles a program of the tests or examples.
fn compiled(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = PLACE.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    cc.arg(here(source)).arg("-I").arg(here("")).arg("-o").arg(&program);
    cc.arg("-L")
        .arg(&*PLACE)
        .arg(format!("-Wl,--disable-new-dtags,-rpath,{}", PLACE.display()))
        .arg("-lflowgauge");
    done(&mut cc);
    program
}

/// Whether a tool runs here; prints why not.
fn runs(command: &mut Command) -> bool {
    let ran = command.output();
    let works = ran.as_ref().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: {command:?} does not work here: {ran:?}");
    }
    works
}

/// An empty program compiled with this flag, if compiler and machine support it.
fn sanitizes(flag: &str) -> bool {
    let (source, program) = (PLACE.join("nothing.c"), PLACE.join(format!("nothing{flag}")));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    runs(Command::new("cc").arg(flag).arg(source).arg("-o").arg(&program))
        && runs(&mut Command::new(program))
}

const PROGRAMS: [&str; 5] = ["misuse", "threads", "sample", "parsed", "mbufs"];

fn run_all(suffix: &str, flags: &[&str]) {
    let suppressions = format!("suppressions={}", here("tests/c/tsan.supp").display());
    for name in PROGRAMS {
        let program = compiled(&format!("tests/c/{name}.c"), &format!("{name}{suffix}"), flags);
        done(Command::new(program).env("TSAN_OPTIONS", &suppressions));
    }
}

#[test]
fn programs_run() {
    run_all("", &[]);
}

/// The library is not instrumented, but its memory comes from the sanitizer.
#[test]
fn programs_run_under_address_sanitizer() {
    if sanitizes("-fsanitize=address") {
        run_all("-address", &["-fsanitize=address,undefined"]);
    }
}

/// The library is not instrumented: this checks the program's side, including the inline test.
#[test]
fn programs_run_under_thread_sanitizer() {
    if sanitizes("-fsanitize=thread") {
        run_all("-thread", &["-fsanitize=thread"]);
    }
}

#[test]
fn programs_run_under_valgrind() {
    if runs(Command::new("valgrind").arg("--version")) {
        let program = compiled("tests/c/parsed.c", "parsed-valgrind", &[]);
        done(Command::new("valgrind").args(["--quiet", "--error-exitcode=9"]).arg(program));
    }
}

#[test]
fn the_header_is_of_c99_and_of_cpp() {
    let source = PLACE.join("include.c");
    fs::write(&source, "#include <flowgauge.h>\n").unwrap();
    for (compiler, standard) in [("cc", "-std=c99"), ("c++", "-std=c++11")] {
        if runs(Command::new(compiler).arg("--version")) {
            let language = if compiler == "cc" { "c" } else { "c++" };
            let mut check = Command::new(compiler);
            check.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", standard]);
            done(check.args(["-x", language]).arg(&source).arg("-I").arg(here("")));
        }
    }
}

/// Between two calls of `getppid`, which serve as markers, the pushing thread makes no system call.
#[test]
fn a_push_makes_no_system_call() {
    let program = compiled("tests/c/quiet.c", "quiet", &[]);
    let traces = PLACE.join("traces");
    let _ = fs::remove_dir_all(&traces);
    fs::create_dir(&traces).unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-ff", "-qq", "-o"]).arg(traces.join("thread")).arg(program);
    if !runs(&mut strace) {
        return;
    }
    let threads = fs::read_dir(traces).unwrap();
    let threads = threads.map(|trace| fs::read_to_string(trace.unwrap().path()).unwrap());
    let marked = threads.into_iter().find(|calls| calls.contains("getppid(")).unwrap();
    let is_mark = |call: &&str| call.starts_with("getppid(");
    let between: Vec<_> = marked.lines().skip_while(|call| !is_mark(call)).skip(1).collect();
    assert!(is_mark(&between[0]), "{:?}", &between[..between.len().min(20)]);
}

/// The shared library exports what the version script lists, the header declares and the man page
#[test]
fn the_exported_symbols_are_listed() {
    let nm =
        done(Command::new("nm").args(["-D", "--defined-only"]).arg(PLACE.join("libflowgauge.so")));
    let nm = String::from_utf8(nm.stdout).unwrap();
    let exported: BTreeSet<_> =
        nm.lines().map(|line| line.split(' ').next_back().unwrap()).collect();
    let map = fs::read_to_string(here("flowgauge.map")).unwrap();
    let mut listed = BTreeSet::new();
    let mut version = "";
    for line in map.lines() {
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
            listed.insert(version.to_owned());
        } else if let Some(name) =
            line.trim().strip_suffix(';').filter(|name| name.starts_with("fg_"))
        {
            listed.insert(format!("{name}@@{version}"));
        }
    }
    assert!(listed.len() > 10);
    assert_eq!(exported, listed.iter().map(String::as_str).collect());
    let header = fs::read_to_string(here("flowgauge.h")).unwrap();
    let page = fs::read_to_string(here("libflowgauge.3")).unwrap();
    for name in listed.iter().filter_map(|name| Some(name.split_once("@@")?.0)) {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
        assert!(page.contains(&format!("{name}(")), "{name} is not in the man page");
    }
}

/// The example reports the same as `flowgauge analyze` on a capture.
#[test]
fn the_example_reports_the_same_as_analyze() {
    let program = compiled("examples/pcap.c", "pcap", &[]);
    let capture = here("../../tests/captures/var-services-std-ports.pcap");
    for key in ["five-tuple", "source"] {
        let tasks = Some(vec!["top".to_owned()]);
        let key_of = key.parse().unwrap();
        let config = Config { key: key_of, tasks, services: true, ..Config::seeded(7) };
        let mut lines = Vec::new();
        let plan = Plan::new(config).unwrap();
        let mut sink = Written::new(Json, &mut lines);
        let mut captures = Captures::open([&capture]);
        flowgauge_engine::run(plan, &mut captures, &mut sink, &mut |_| {}).unwrap();
        let expected = String::from_utf8(lines).unwrap();
        let options = format!("key={key} task=top");
        let output = done(Command::new(&program).arg(&capture).args([&options, "7"]));
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(expected.contains("\"breakdown\":{"), "{expected}");
        assert_eq!(output.lines().next(), expected.lines().next());
        assert_eq!((output.lines().count(), expected.lines().count()), (2, 2));
    }
}
