//! A pair of interfaces in a network namespace, and commands that run in it. This needs root, `ip
//! netns` and python3; tests skip themselves elsewhere, unless `FLOWGAUGE_LIVE=1` forbids that.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::run::Answer;

/// Sends the packets of a little-endian pcap a number of times.
pub(crate) const SEND: &str = "
import socket, struct, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
data, at, packets = open(sys.argv[2], 'rb').read(), 24, []
while at < len(data):
    length = struct.unpack_from('<I', data, at + 8)[0]
    packets.append(data[at + 16:at + 16 + length])
    at += 16 + length
for _ in range(int(sys.argv[3])):
    for packet in packets:
        out.send(packet)
";

/// Sends 50 datagrams from the host to itself.
pub(crate) const SEND_HOME: &str = "
import socket
home = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
home.bind(('127.0.0.1', 0))
for _ in range(50):
    home.sendto(b'hello', home.getsockname())
";

/// Has the interface `here` join packets (`ETHTOOL_SGRO`).
pub(crate) const JOIN: &str = "
import array, fcntl, socket, struct
value = array.array('B', struct.pack('II', 0x2c, 1))
request = struct.pack('16sP', b'here', value.buffer_info()[0])
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
";

/// Runs a command on a terminal of 80 columns.
const TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
try:
    while data := os.read(terminal, 65536):
        os.write(1, data)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

/// A namespace with the interfaces `here` and `there`, two ends of a wire.
pub(crate) struct Net(String);

impl Net {
    /// Creates it; `None` with a printed reason if that is not possible.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let skipped = |reason: &str| {
            assert!(env::var_os("FLOWGAUGE_LIVE").is_none(), "{reason}");
            println!("skipped: {reason}");
            None
        };
        if !root() {
            return skipped("not root");
        }
        let net = Self(format!("flowgauge-{}-{name}", std::process::id()));
        if !succeeds("ip", &["netns", "add", &net.0]) {
            // Without a namespace there is nothing to remove.
            std::mem::forget(net);
            return skipped("ip netns is missing or forbidden");
        }
        if !succeeds("python3", &["-c", "import socket"]) {
            return skipped("python3 is missing");
        }
        // Without IPv6 no other packets are sent.
        net.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"]);
        net.run("ip", &["link", "add", "here", "type", "veth", "peer", "name", "there"]);
        for interface in ["lo", "here", "there"] {
            net.run("ip", &["link", "set", interface, "up"]);
        }
        Some(net)
    }

    /// A command inside.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).args(arguments);
        command
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn send(&self, capture: &str) {
        self.send_often(capture, 1);
    }

    pub(crate) fn send_often(&self, capture: &str, times: u32) {
        self.run("python3", &["-c", SEND, "there", capture, &times.to_string()]);
    }

    /// Begins to measure, and waits until packets are received.
    pub(crate) fn live(&self, interface: &str, arguments: &[&str]) -> Live {
        self.live_as("json", interface, arguments)
    }

    /// Measures as [`Self::live`] does, with reports in another format.
    pub(crate) fn live_as(&self, format: &str, interface: &str, arguments: &[&str]) -> Live {
        let arguments =
            [&["live", "-i", interface, "--seed", "0", "--format", format], arguments].concat();
        self.begin(env!("CARGO_BIN_EXE_flowgauge"), interface, &arguments)
    }

    /// Begins to measure on a terminal.
    pub(crate) fn terminal(&self, interface: &str, arguments: &[&str]) -> Live {
        let flowgauge = env!("CARGO_BIN_EXE_flowgauge");
        let live = ["-c", TERMINAL, flowgauge, "live", "--seed", "0", "-i", interface];
        self.begin("python3", interface, &[&live, arguments].concat())
    }

    pub(crate) fn begin(&self, program: &str, interface: &str, arguments: &[&str]) -> Live {
        let mut command = self.command(program, arguments);
        let child = command
            .env("LC_ALL", "C.UTF-8")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let xdp = arguments.contains(&"af-xdp");
        // A program that takes packets, or a socket that is bound to all protocols.
        while !if xdp {
            self.run("ip", &["link", "show", interface]).contains("xdp")
        } else {
            self.run("cat", &["/proc/net/packet"]).contains(" 0003 ")
        } {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing listens");
            sleep(Duration::from_millis(20));
        }
        if xdp {
            // The sockets follow their program.
            sleep(Duration::from_millis(500));
        }
        Live(child)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        succeeds("ip", &["netns", "del", &self.0]);
    }
}

/// A running command.
pub(crate) struct Live(pub(crate) Child);

impl Live {
    pub(crate) fn signal(&self, signal: &str) {
        assert!(succeeds("kill", &[signal, &self.0.id().to_string()]));
    }

    pub(crate) fn interrupt(self, signal: &str) -> Answer {
        self.signal(signal);
        self.end()
    }

    pub(crate) fn end(self) -> Answer {
        let output = self.0.wait_with_output().unwrap();
        Answer {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
