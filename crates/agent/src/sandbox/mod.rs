//! The sandbox, which an agent enters before it opens anything. From then on the agent, or an
//! intruder who takes it over, can read, write and start only what the configuration names.
//!
//! The [`Helper`], started before that, keeps the privileges needed later.

mod helper;
mod places;
mod user;

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::unistd::Uid;
use rustix::thread::set_no_new_privs;

pub use helper::{Helper, help};
use places::Places;

use crate::Failure;
use crate::collect;
use crate::config::{Configuration, Engine};
use crate::log::say;

/// A sandbox that this process has entered.
pub struct Sandbox {
    /// The agent's helper process.
    helper: Option<Helper>,
    places: Places,
    user: Option<String>,
    /// Whether it permits what AF_XDP needs.
    xdp: bool,
}

impl Sandbox {
    /// Enters the sandbox of a configuration. The process must still be single-threaded. `helper`
    /// is the command that calls [`help`].
    ///
    /// # Errors
    /// When the user does not exist or cannot be assumed, a folder cannot be created, or the system
    /// refuses.
    pub fn enter(
        configuration: &Configuration,
        file: &Path,
        helper: Command,
    ) -> Result<Self, Failure> {
        let is_by = |engine| configuration.sources.iter().any(|source| source.is_by(engine));
        if is_by(Engine::Dpdk) {
            return Err(Failure::Usage(
                "DPDK needs privileges that the sandbox takes away; run the agent with --no-sandbox"
                    .to_owned(),
            ));
        }
        let xdp = is_by(Engine::AfXdp);
        let user = configuration.agent.user.clone();
        Self::confine(user, xdp, Places::of(configuration, file), Some(helper))
    }

    /// Enters the sandbox of a collector's configuration. The process must still be
    /// single-threaded.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn enter_collector(
        configuration: &collect::Configuration,
        file: &Path,
    ) -> Result<Self, Failure> {
        let places = Places::of_collector(configuration, file);
        Self::confine(configuration.collect.user.clone(), false, places, None)
    }

    fn confine(
        user: Option<String>,
        xdp: bool,
        places: Places,
        helper: Option<Command>,
    ) -> Result<Self, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::Failed(format!("sandbox: {what}: {error}; --no-sandbox runs without it"))
        };
        // The sandbox applies to one thread and the threads it starts.
        let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
        if threads.map_err(|error| failed("cannot count threads", &error))? != 1 {
            return Err(failed("too late", &"there are threads already"));
        }
        let account = user.as_deref().map(user::find).transpose()?;
        places.make(account.as_ref())?;
        let helper = helper.map(Helper::start).transpose();
        let helper = helper.map_err(|error| failed("cannot start the helper", &error))?;
        let who = user::become_user(account.as_ref(), xdp)?;
        set_no_new_privs(true).map_err(|error| failed("no new privileges", &error))?;
        let is_root = Uid::effective().is_root();
        let landlock = places.enforce(is_root).map_err(|error| failed("Landlock", &error))?;
        let calls = user::refuse(xdp).map_err(|error| failed("seccomp", &error))?;
        say(&format!("sandbox: {who}, no new privileges, {landlock}, {calls}"));
        Ok(Self { helper, places, user, xdp })
    }

    /// The helper process; a collector has none.
    pub fn helper(&self) -> Option<&Helper> {
        self.helper.as_ref()
    }

    /// Checks that another configuration can be used without leaving the sandbox.
    ///
    /// # Errors
    /// The user, privilege or path that is missing.
    pub fn check(&self, next: &Configuration, file: &Path) -> Result<(), Failure> {
        let is_by = |engine| next.sources.iter().any(|source| source.is_by(engine));
        if is_by(Engine::Dpdk) || !self.xdp && is_by(Engine::AfXdp) {
            return refuse("the sandbox leaves no privileges for af-xdp and dpdk");
        }
        self.check_places(("agent", &next.agent.user), &Places::of(next, file))
    }

    /// Like [`Self::check`], for a collector's configuration.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_collector(
        &self,
        next: &collect::Configuration,
        file: &Path,
    ) -> Result<(), Failure> {
        let places = Places::of_collector(next, file);
        self.check_places(("collect", &next.collect.user), &places)
    }

    fn check_places(
        &self,
        (part, user): (&str, &Option<String>),
        places: &Places,
    ) -> Result<(), Failure> {
        if *user != self.user {
            return refuse(&format!("{part}.user differs from the sandbox's user"));
        }
        match places.beyond(&self.places) {
            Some(place) => refuse(&format!("the sandbox does not reach {}", place.display())),
            None => Ok(()),
        }
    }
}

/// The error for something that the sandbox does not permit.
fn refuse(what: &str) -> Result<(), Failure> {
    Err(Failure::Usage(format!("{what}; restart to change that")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::ErrorKind;
    use std::thread;

    use super::*;

    fn places(read: &str, write: &str) -> Places {
        Places { read: vec![read.into()], write: vec![write.into()] }
    }

    /// Runs in a thread, so that only this thread is in the sandbox.
    #[test]
    fn writing_elsewhere_and_starting_programs_fail() {
        let folder = std::env::temp_dir().join(format!("flowgauge-sandbox-{}", std::process::id()));
        let (data, other) = (folder.join("data"), folder.join("other"));
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("secret"), "secret").unwrap();
        let places = places("/usr", &data.display().to_string());
        let (kept, elsewhere) = (data.clone(), other.clone());
        let attempt = move || {
            set_no_new_privs(true).unwrap();
            let landlock = places.enforce(true).unwrap();
            assert_eq!(user::refuse(false).unwrap(), "seccomp");
            fs::write(kept.join("part"), "x").unwrap();
            fs::rename(kept.join("part"), kept.join("whole")).unwrap();
            fs::remove_file(kept.join("whole")).unwrap();
            let refused = Command::new("true").status().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "a program was started");
            if landlock.starts_with("no ") {
                eprintln!("skipped the rest: {landlock}");
                return;
            }
            fs::read("/proc/self/status").unwrap();
            for refused in [
                fs::write(elsewhere.join("new"), "x"),
                fs::read(elsewhere.join("secret")).map(drop),
                fs::read_dir(&elsewhere).map(drop),
                fs::write("/usr/new", "x"),
                fs::remove_file(elsewhere.join("secret")),
                std::os::unix::net::UnixListener::bind(elsewhere.join("socket")).map(drop),
            ] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
        };
        thread::spawn(attempt).join().unwrap();
        assert_eq!(fs::read_to_string(other.join("secret")).unwrap(), "secret");
        assert!(Command::new("true").status().unwrap().success(), "the sandbox is all over");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn places_beyond_those_of_the_sandbox_are_named() {
        let now = places("/etc/flowgauge", "/var/lib/flowgauge");
        let beyond =
            |read, write| places(read, write).beyond(&now).map(|place| place.display().to_string());
        assert_eq!(beyond("/etc/flowgauge", "/var/lib/flowgauge/reports"), None);
        assert_eq!(beyond("/var/lib/flowgauge/captures", "/var/lib/flowgauge"), None);
        assert_eq!(beyond("/etc", "/var/lib/flowgauge"), Some("/etc".to_owned()));
        let written = "/etc/flowgauge/data";
        assert_eq!(beyond("/etc/flowgauge", written), Some(written.to_owned()));
        let similar = "/var/lib/flowgauge2";
        assert_eq!(beyond("/etc/flowgauge", similar), Some(similar.to_owned()));
    }
}
