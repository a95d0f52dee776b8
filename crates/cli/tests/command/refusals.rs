//! Refusals: exit code 2, nothing on standard output, one line that helps.

use crate::run::{file, flowgauge, pcap, traffic};

/// With one line that holds the hint, and nothing else.
fn refused(arguments: &[&str], hint: &str) {
    let answer = flowgauge(arguments);
    assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{arguments:?}");
    assert_eq!(answer.err.lines().count(), 1, "{arguments:?}: {}", answer.err);
    assert!(answer.err.starts_with("flowgauge: "), "{}", answer.err);
    assert!(answer.err.contains(hint), "{arguments:?}: {}", answer.err);
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    let capture = file("refused.pcap", &pcap(&traffic()));
    let unwritten = file("unwritten.pcap", b"as it was");
    let detour = unwritten.replace("unwritten", "./unwritten");
    for (arguments, hint) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["analyze"], "standard input"),
        (&["analyze", "--taks", "top", &capture], "'--task'"),
        (&["analyze", "--key", "colour", &capture], "five-tuple"),
        (&["analyze", "--key", "source+destination-prt", &capture], "'destination-port'?"),
        (&["analyze", "--key", "source+pair", &capture], "names the field 'source' twice"),
        (&["analyze", "--key", "source/33", &capture], "0 to 32"),
        (&["analyze", "--by", "weight", &capture], "bytes"),
        (&["analyze", "--memory", "64Q", &capture], "64MiB"),
        (&["analyze", "--memory", "1kB", &capture], "--memory"),
        (&["analyze", "--epoch", "10", &capture], "10s"),
        (&["analyze", "--threshold", "0.1", &capture], "0.1%"),
        (&["analyze", "--format", "xml", &capture], "json"),
        (&["analyze", "-c", "0", &capture], "-c"),
        (&["analyze", "--bytes-of", "inner", &capture], "--inner"),
        (&["analyze", "--inner", "--bytes-of", "both", &capture], "outer"),
        (&["analyze", "--top", "0", &capture], "--top"),
        (&["analyze", "--top", "-1", &capture], "'-1' found; see --help"),
        (&["analyze", "--task", "weather", &capture], "cardinality"),
        (&["analyze", "--task", "superspreaders", "--key", "protocol", &capture], "five-tuple"),
        (&["analyze", "--task", "flow-size", &capture], "--flow"),
        (&["analyze", "--flow", "source=10.0.0.1", &capture], "--task flow-size"),
        (&["analyze", "--task", "flow-size", "--flow", "protocol=6", &capture], "missing"),
        (&["analyze", "--algorithm", "magic", &capture], "linear-table"),
        (&["analyze", "--algorithm", "linear-table:rows=2", &capture], "buckets"),
        (&["analyze", "--algorithm", "linear-table:buckets=3", &capture], "power of two"),
        (&["analyze", "--accelerator", "turbo", &capture], "agg-evict"),
        (&["analyze", "--key", "sorce", &capture], "unknown key 'sorce'; did you mean 'source'?"),
        (&["analyze", "--task", "heavy-hiters", &capture], "did you mean 'heavy-hitters'?"),
        (&["analyze", "--algorithm", "count_min", &capture], "did you mean 'count-min'?"),
        (&["analyze", "--algorithm", "count-min:colums=64", &capture], "did you mean 'columns'?"),
        (&["analyze", "--accelerator", "nitr", &capture], "did you mean 'nitro'?"),
        (&["analyze", "--accelerator", "uniform:samples=9", &capture], "did you mean 'sample'?"),
        (&["analyze", "--measure", "a: kye=source", &capture], "did you mean 'key'?"),
        (&["analyze", "--measure", "a: key", &capture], "'key' in 'a' is not OPTION=VALUE"),
        (&["analyze", "--measure", "a:", "--measure", "a:", &capture], "named 'a'"),
        (&["analyze", "--accelerator", "agg-evict:rows=3", &capture], "a power of two"),
        (
            &["analyze", "--accelerator", "agg-evict", "--accelerator", "agg-evict", &capture],
            "once is enough",
        ),
        (
            &[
                "analyze",
                "--algorithm=k-ary",
                "--accelerator=nitro",
                "--epoch=1s",
                "--task=changes",
                "--forecast=holt-winters",
                &capture,
            ],
            "so the error of a sample is unknown",
        ),
        (
            &["analyze", "--accelerator", "agg-evict:k=3", &capture],
            "of agg-evict; available: rows, memory, policy",
        ),
        (&["analyze", "--accelerator", "agg-evict:rows=4,memory=4096", &capture], "give one"),
        (&["analyze", "--accelerator", "none:rows=4", &capture], "none"),
        (&["analyze", "--accelerator", "none", "--accelerator", "agg-evict", &capture], "none"),
        (
            &["analyze", "--accelerator", "agg-evict", "--algorithm", "csm", &capture],
            "it supports linear-table",
        ),
        (
            &["analyze", "--accelerator", "flow-regulator", "--algorithm", "count-min", &capture],
            "it needs a flow table; it supports linear-table",
        ),
        (
            &["analyze", "--accelerator", "agg-evict", "--accelerator", "flow-regulator", &capture],
            "agg-evict cannot stand before flow-regulator",
        ),
        (
            &["analyze", "--memory", "1MiB", "--algorithm", "count-min:columns=1048576", &capture],
            "--memory",
        ),
        (&["analyze", "--filter", "tcp and and", &capture], "filter"),
        (&["analyze", "-o", &capture, &capture], "input"),
        (&["generate", "--skew", "3", "-o", &unwritten], "0 to 2"),
        (&["generate", "--skew", "1", "--profile", "backbone", "-o", &unwritten], "zipf"),
        (&["generate", "--size", "tiny", "-o", &unwritten], "imix"),
        (&["generate", "--plant", "earthquake", "-o", &unwritten], "scan"),
        (&["generate", "-o", &unwritten, "--truth", &unwritten], "different files"),
        (&["generate", "-o", &unwritten, "--truth", &detour], "different files"),
        (&["generate", "--truth", "-"], "different files"),
        (&["list", "--format", "csv"], "json"),
        (&["explain", "--format", "csv"], "json"),
        (&["explain", "--task", "weather"], "cardinality"),
    ] {
        refused(arguments, hint);
    }
    assert_eq!(std::fs::read(unwritten).unwrap(), b"as it was");
    // The input that was to be overwritten is still there.
    assert_eq!(flowgauge(&["analyze", &capture]).code, 0);
}

/// Options of tcpdump, and misspelled words, are answered with the right ones.
#[test]
fn the_right_words_are_named() {
    let capture = file("words.pcap", &pcap(&traffic()));
    for (arguments, hint) in [
        (&["analyze", &capture, "tcp", "port", "80"][..], "write -r FILE tcp port 80"),
        (&["explain", "none.pcap", "udp"], "for a filter, write -r FILE udp"),
        (&["analyze", "--key", "dst", &capture], "unknown key 'dst'; did you mean 'destination'?"),
        (&["analyze", "--filter", "tcp prot 80", &capture], "(did you mean 'port'?)"),
        (&["analyze", "--top", "ten", &capture], "write a whole number"),
        (&["analyze", "--sink", "jsn:-", &capture], "unknown format 'jsn'; did you mean 'json'?"),
        (&["generate", "--plant", "floods"], "did you mean 'flood'?"),
    ] {
        refused(arguments, hint);
    }
    // A file that is not there, and is no filter, stays one.
    let answer = flowgauge(&["analyze", &capture, "none.pcap"]);
    assert!(answer.code == 1 && answer.err.contains("none.pcap: cannot be read"), "{}", answer.err);
}

/// Every kind of name that users write gets the nearest one when it is misspelt.
#[test]
fn misspelt_names_get_the_nearest() {
    let capture = file("misspelt.pcap", &pcap(&traffic()));
    let configuration = file("misspelt.yaml", b"measurements:\n  web:\n    algoritm: count-min\n");
    for (arguments, nearest) in [
        (&["anlyze", &capture][..], "analyze"),
        (&["analyze", "--frmat", "json", &capture], "--format"),
        (&["analyze", "--by", "byts", &capture], "bytes"),
        (&["list", "algoritms"], "algorithms"),
        (&["analyze", "--task", "supersreaders", &capture], "superspreaders"),
        (&["analyze", "--key", "five-tupel", &capture], "five-tuple"),
        (&["analyze", "--key", "source+destination-prt", &capture], "destination-port"),
        (&["analyze", "--task", "flow-size", "--flow", "sorce=1", &capture], "source"),
        (&["analyze", "--algorithm", "space-savin", &capture], "space-saving"),
        (&["analyze", "--algorithm", "count-min:rwos=2", &capture], "rows"),
        (&["analyze", "--algorithm", "linear-table:layout=inlin", &capture], "inline"),
        (&["analyze", "--accelerator", "skiper", &capture], "skipper"),
        (&["analyze", "--accelerator", "skipper:epsilo=0.1", &capture], "epsilon"),
        (&["analyze", "--accelerator", "agg-evict:policy=lur", &capture], "lru"),
        (&["analyze", "--filter", "tcp dts port 80", &capture], "dst"),
        (&["analyze", "--filter", "port doman", &capture], "domain"),
        (&["analyze", "--filter", "ip proto igpm", &capture], "igmp"),
        (&["analyze", "--measure", "web: fliter=tcp", &capture], "filter"),
        (&["analyze", "-C", &configuration, &capture], "algorithm"),
        (&["analyze", "--sink", "jsn:-", &capture], "json"),
        (&["generate", "--plant", "floods"], "flood"),
        (&["generate", "--plant", "scan:packet=3"], "packets"),
    ] {
        refused(arguments, &format!("did you mean '{nearest}'?"));
    }
}

/// Of several workers, of answers during an epoch, and of what chooses the algorithm.
#[test]
fn options_that_conflict_are_refused_alike() {
    let capture = file("apart.pcap", &pcap(&traffic()));
    for (arguments, hint) in [
        (&["analyze", "--updates", "10", &capture][..], "10s"),
        (
            &["analyze", "--updates", "1s", "--epoch", "1s", &capture],
            "--updates 1s must be shorter than --epoch 1s",
        ),
        (
            &["live", "--updates", "10s", "-i", "lo"],
            "--updates 10s must be shorter than --epoch 10s",
        ),
        (&["live", "--limit", "0", "-i", "lo"], "a --limit of 1 or more"),
        (
            &["live", "-i", "lo", "--workers=2", "--fanout=cpu", "--dispatch=digest"],
            "--dispatch and --overrun need one queue",
        ),
        (&["live", "-i", "lo", "-i", "other", "-c", "9"], "-c needs one queue"),
        (&["live", "-i", "lo", "-i", "other", "-i", "lo"], "'lo' is named twice"),
        (&["live", "-i", "lo", "-i", "any"], "-i any already measures all interfaces"),
        (&["live", "-i", "lo", "--ring", "64KiB"], "512KiB to 1GiB"),
        (&["live", "-i", "lo", "--engine", "af-xdp"], "add --takes-traffic to agree"),
        (
            &["live", "-i", "any", "--engine", "af-xdp", "--takes-traffic"],
            "-i any needs --engine af-packet",
        ),
        (&["live", "-i", "lo", "--busy-poll"], "--busy-poll needs --engine af-xdp"),
        (&["live", "-i", "lo", "--takes-traffic"], "needs --engine af-xdp or dpdk"),
        (&["live", "-i", "lo", "--dpdk-args", "--no-huge"], "--dpdk-args needs --engine dpdk"),
        #[cfg(not(feature = "dpdk"))]
        (&["live", "-i", "lo", "--engine", "dpdk"], "build it with 'make dpdk'"),
        #[cfg(not(feature = "parquet"))]
        (
            &["analyze", "--format", "parquet", "-o", "none/", &capture],
            "use csv, or build it with 'make agent' or the feature 'parquet'",
        ),
        (
            &["live", "-i", "lo", "--engine=af-xdp", "--takes-traffic", "--fanout=cpu"],
            "--fanout needs --engine af-packet",
        ),
        (&["live", "-i", "lo", "--engine", "af-xpd"], "af-xdp"),
        (&["analyze", "--updates", "9p", "--format", "csv", &capture], "use --format json or text"),
        (
            &["analyze", "--updates", "9p", "--workers=2", "--algorithm=flow-radar", &capture],
            "use one worker, or another algorithm",
        ),
        (
            &["analyze", "--workers", "2", "--algorithm", "linear-table:state=ewma", &capture],
            "use one worker",
        ),
        (&["analyze", "--workers", "0", &capture], "--workers"),
        (&["analyze", "--shared", &capture], "--workers 2"),
        (
            &["analyze", "--workers=2", "--shared", "--algorithm=mst", &capture],
            "or use linear-table",
        ),
        (
            &["analyze", "--algorithm=mst", "--key=destination-port+vlan", &capture],
            "over one address, and the key is destination-port+vlan; use --key source or destination",
        ),
        (
            &["analyze", "--algorithm=mst", "--hierarchy=pair", "--key=source+vlan", &capture],
            "use --key pair",
        ),
        (
            &[
                "analyze",
                "--algorithm=rhhh",
                "--hierarchy=pair",
                "--key=source+source-port+destination-port",
                &capture,
            ],
            "over source and destination, and the key is source+source-port+destination-port; use",
        ),
        (&["analyze", "--dispatch", "digest", &capture], "give --workers 2 or more"),
        (&["analyze", "--overrun", "drop", &capture], "give --workers 2 or more"),
        (&["analyze", "--error", "1%", &capture], "need --algorithm auto"),
        (&["analyze", "--audit", "1%", &capture], "write 1/N, such as 1/64"),
        (
            &["analyze", "--audit", "1/64", "--algorithm", "hyperloglog", &capture],
            "cannot audit hyperloglog: it does not estimate the sizes of flows; leave out --audit",
        ),
        (&["analyze", "--rate", "1Mpps", &capture], "need --algorithm auto"),
        (
            &["analyze", "--algorithm", "auto", "--accelerator", "agg-evict", &capture],
            "leave them out",
        ),
        (&["analyze", "--algorithm", "auto:rows=2", &capture], "leave them out"),
    ] {
        refused(arguments, hint);
    }
}

#[test]
fn an_unwritable_output_is_a_failure() {
    let capture = file("failing.pcap", &pcap(&traffic()));
    for target in ["/nonexistent/report.json", "/dev/full"] {
        let answer = flowgauge(&["analyze", "-o", target, &capture]);
        assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{target}");
        assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
    }
}

#[test]
fn help_and_version_are_no_failure() {
    let version = flowgauge(&["--version"]);
    assert_eq!((version.code, version.err.as_str()), (0, ""));
    assert!(version.out.contains(env!("CARGO_PKG_VERSION")), "{}", version.out);
    assert!(version.out.contains("instruction set "), "{}", version.out);
    for arguments in [&["--help"][..], &["analyze", "--help"], &["list", "-h"]] {
        let help = flowgauge(arguments);
        assert_eq!((help.code, help.err.as_str()), (0, ""));
    }
    // Every command that measures, and generate, shows how it is used.
    for command in ["analyze", "live", "generate", "list", "cut", "query", "merge", "explain"] {
        let help = flowgauge(&[command, "--help"]);
        let example = format!("\n  flowgauge {command} ");
        assert!(help.out.contains("Examples:") && help.out.contains(&example), "{}", help.out);
    }
    assert!(flowgauge(&["--help"]).out.contains("completions"));
    // The bounds stand in reports.
    let explain = flowgauge(&["explain", "--algorithm", "count-min:epsilon=0.01,delta=0.01"]);
    assert!(explain.out.contains("reports give their bounds"), "{}", explain.out);
    assert!(!flowgauge(&["--help"]).out.contains("its bounds"));
    assert_eq!(flowgauge(&[]).code, 2);
}

/// The agent is a feature: a command without it says how to get it.
#[cfg(not(feature = "agent"))]
#[test]
fn without_the_agent_its_commands_say_how_to_get_it() {
    for command in [&["run", "-C", "agent.yaml"][..], &["check", "agent.yaml"], &["top", "data"]] {
        let refused = flowgauge(command);
        let message =
            "flowgauge: this flowgauge was built without the agent; build it with 'make agent'\n";
        assert_eq!((refused.code, refused.out.as_str(), refused.err.as_str()), (2, "", message));
    }
}

/// `FLOWGAUGE_ISA` selects an instruction set by name; an unknown name is wrong usage.
#[test]
fn an_unknown_instruction_set_is_refused() {
    let version = |isa: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowgauge"));
        let output = command.arg("--version").env("FLOWGAUGE_ISA", isa).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = version("avx3");
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let hint = "flowgauge: unknown instruction set 'avx3' in FLOWGAUGE_ISA; available: scalar";
    assert!(err.starts_with(hint) && err.lines().count() == 1, "{err}");
    let (code, out, err) = version("scalar");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("(instruction set scalar)"), "{out}");
    assert_eq!(version("").0, Some(0), "empty is unset");
}
