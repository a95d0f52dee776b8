//! Queues of interfaces that overload, come back or change, in a network namespace of each test's
//! thread. This needs root and python3; tests skip themselves elsewhere, unless `FLOWGAUGE_LIVE=1`
//! forbids that.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use flowgauge_core::packet::LinkType;
use flowgauge_engine::source::{Burst, Columns, Source, SourceError};
use flowgauge_filter::Filter;
use flowgauge_live::{InterfaceFault, LiveError, Options, XdpOptions, XdpQueue, open, open_xdp};

/// Sends packets of 60 bytes from the interface `there`.
const SEND: &str = "
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(('there', 0))
for _ in range(int(sys.argv[1])):
    out.send(bytes(12) + bytes([8, 0]) + bytes(46))
";

/// Sets the number of queues of the interface `here` (`ETHTOOL_SCHANNELS`).
const CHANNELS: &str = "
import array, fcntl, socket, struct, sys
number = int(sys.argv[1])
value = array.array('B', struct.pack('9I', 0x3d, 0, 0, 0, 0, number, number, 0, 0))
request = struct.pack('16sP', b'here', value.buffer_info()[0])
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
";

/// Makes the interface `tap` of Ethernet. Then each line from standard input is a hardware type that
/// it changes to (`TUNSETLINK`), or, if empty, a frame that it receives.
const TAP: &str = "
import fcntl, os, struct, sys
tap = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH22x', b'tap', 0x1002))
print(flush=True)
for line in sys.stdin:
    if line.strip():
        fcntl.ioctl(tap, 0x400454cd, int(line))
    else:
        os.write(tap, bytes(60))
    print(flush=True)
";

/// Moves this thread, and the commands that it starts, to a network of its own with the interfaces
/// `here` and `there`, two ends of a wire. Returns whether it could.
fn alone() -> bool {
    // SAFETY: no memory is passed. The other threads of the process stay where they are.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) } == 0;
    let able = moved
        && succeeds("mount", &["--make-rprivate", "/"])
        && succeeds("mount", &["-t", "sysfs", "sysfs", "/sys"])
        && succeeds("python3", &["-c", "import socket"]);
    if !able {
        assert!(env::var_os("FLOWGAUGE_LIVE").is_none(), "no network of its own");
        println!("skipped: not root, or no namespaces or python3");
        return false;
    }
    // Without IPv6 no other packets are sent.
    run("sh", &["-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"]);
    add("1");
    true
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// Adds the interfaces; `here` has this number of queues.
fn add(queues: &str) {
    let of_here = ["name", "here", "numrxqueues", queues, "numtxqueues", queues];
    let of_there = ["type", "veth", "peer", "name", "there"];
    run("ip", &[&["link", "add"], &of_here[..], &of_there].concat());
    set("here", "up");
    set("there", "up");
}

fn set(interface: &str, state: &str) {
    run("ip", &["link", "set", interface, state]);
}

fn send(packets: &str) {
    run("python3", &["-c", SEND, packets]);
}

/// AF_XDP with room for 512 packets.
fn xdp() -> Result<XdpQueue, LiveError> {
    let options =
        XdpOptions { queues: 1, ring_bytes: 2 << 20, promiscuous: true, busy_poll: false };
    open_xdp("here", &options, &Arc::<AtomicBool>::default())
        .map(|mut queues| queues.pop().unwrap())
}

/// Polls once; returns the number of packets.
fn poll(queue: &mut dyn Source) -> Result<usize, SourceError> {
    let mut columns = Columns::default();
    let mut burst = Burst::new(&mut columns);
    queue.poll(&mut burst)?;
    Ok(burst.len())
}

fn count(queue: &dyn Source, name: &str) -> u64 {
    queue.counters().iter().find(|counter| counter.name == name).unwrap().count
}

/// Polls until this is so.
fn poll_until(queue: &mut dyn Source, is_so: impl Fn(&dyn Source) -> bool) {
    let begun = Instant::now();
    while !is_so(queue) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        poll(queue).unwrap();
    }
}

/// Polls until the queue fails; returns the text.
fn failure(queue: &mut dyn Source) -> String {
    let begun = Instant::now();
    loop {
        match poll(queue) {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(30)),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn af_xdp_fails_when_its_interface_comes_back_with_more_queues() {
    if !alone() {
        return;
    }
    let mut queue = xdp().unwrap();
    send("100");
    poll_until(&mut queue, |queue| count(queue, "received") == 100);
    run("ip", &["link", "del", "here"]);
    poll_until(&mut queue, |queue| count(queue, "interruptions") == 1);
    add("4");
    let failure = failure(&mut queue);
    assert!(failure.contains("has 4 receive queues"), "{failure}");
}

#[test]
fn af_xdp_fails_when_its_interface_gets_more_queues() {
    if !alone() {
        return;
    }
    run("ip", &["link", "del", "here"]);
    add("2");
    run("python3", &["-c", CHANNELS, "1"]);
    let mut queue = xdp().unwrap();
    run("python3", &["-c", CHANNELS, "2"]);
    let failure = failure(&mut queue);
    assert!(failure.contains("has 2 receive queues"), "{failure}");
}

#[test]
fn af_xdp_counts_dropped_packets_while_others_wait() {
    if !alone() {
        return;
    }
    let mut queue = xdp().unwrap();
    send("2000");
    sleep(Duration::from_millis(100));
    let received = poll(&mut queue).unwrap();
    assert!((1..512).contains(&received), "{received} of 512 packets");
    assert_eq!(count(&queue, "dropped_by_kernel"), 2000 - 512);
}

/// An outage ends at the first look, though packets are waiting then.
fn outage_ends(queue: &mut dyn Source) {
    set("here", "down");
    poll_until(queue, |queue| count(queue, "interruptions") == 1);
    assert!(queue.outage().unwrap().starts_with("interface here is down since 20"));
    set("here", "up");
    send("2000");
    // The longest time between two looks.
    sleep(Duration::from_millis(1100));
    assert!(poll(queue).unwrap() > 0);
    assert_eq!(queue.outage(), None);
    let note = std::iter::from_fn(|| queue.note()).last().unwrap();
    assert!(note.starts_with("interface here was down from 20"), "{note}");
}

#[test]
fn an_outage_ends_while_packets_are_waiting() {
    if !alone() {
        return;
    }
    let options = Options { ring_bytes: 512 << 10, ..Options::default() };
    let mut queues = open("here", &options, &Arc::<AtomicBool>::default()).unwrap();
    outage_ends(&mut queues[0]);
    drop(queues);
    outage_ends(&mut xdp().unwrap());
}

/// Monitors change between Ethernet and radio headers while they are down.
#[test]
fn an_interface_may_come_back_with_another_link_type() {
    if !alone() {
        return;
    }
    let mut tap = Command::new("python3")
        .args(["-c", TAP])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) =
        (tap.stdin.take().unwrap(), BufReader::new(tap.stdout.take().unwrap()).lines());
    output.next().unwrap().unwrap();
    let mut tell = |line: &str| {
        writeln!(input, "{line}").unwrap();
        output.next().unwrap().unwrap();
    };
    set("tap", "up");
    let options = Options { filter: Some(Filter::new("udp").unwrap()), ..Options::default() };
    let mut queues = open("tap", &options, &Arc::<AtomicBool>::default()).unwrap();
    let queue = &mut queues[0];
    set("tap", "down");
    poll_until(queue, |queue| count(queue, "interruptions") == 1);
    tell("803");
    set("tap", "up");
    let begun = Instant::now();
    let link = loop {
        assert!(begun.elapsed() < Duration::from_secs(30));
        // A frame without a radio header, which the filter cannot judge.
        tell("");
        let mut columns = Columns::default();
        let mut burst = Burst::new(&mut columns);
        queue.poll(&mut burst).unwrap();
        if let Some(frame) = burst.frames().iter().next() {
            break frame.link;
        }
    };
    assert_eq!(link, LinkType::IEEE802_11_RADIOTAP);
    drop(input);
    tap.wait().unwrap();
}

/// The kernel refuses the program, whose length is within its limits, for lack of memory.
#[test]
fn a_long_filter_is_applied_here() {
    if !alone() {
        return;
    }
    let ports: Vec<String> = (1..=45).map(|port| format!("port {port}")).collect();
    let options =
        Options { filter: Some(Filter::new(&ports.join(" or ")).unwrap()), ..Options::default() };
    let mut queues = open("here", &options, &Arc::<AtomicBool>::default()).unwrap();
    let note = queues[0].note().unwrap();
    assert!(note.ends_with("the kernel cannot apply this filter; all packets are read"), "{note}");
    send("1");
    poll_until(&mut queues[0], |queue| count(queue, "received") == 1);
}

/// Without CAP_IPC_LOCK, the limit of locked memory holds.
#[test]
fn af_xdp_names_the_limit_of_locked_memory() {
    if !alone() {
        return;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit may be written during the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max.min(64 << 10);
    // SAFETY: the limit is valid during the call. Other tests have the capability.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
    // Version 3 of the call; this thread; effective, permitted and inheritable capabilities.
    let header = [0x2008_0522_u32, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: both arrays have the layout of the call's structures, and are valid during it.
    let get = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    let ipc_lock = 14;
    sets[0] &= !(1 << ipc_lock);
    // SAFETY: as above; the call only reads them.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!((get, set), (0, 0));
    let fault = xdp().err().unwrap().fault;
    assert!(matches!(fault, InterfaceFault::Locked(bytes) if bytes == 2 << 20), "{fault}");
    let text = fault.to_string();
    assert!(text.contains("ulimit -l") && text.contains("--ring"), "{text}");
}
