//! The files and folders that an agent may use, enforced by Landlock.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::unistd::User;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, mkdirat, open, openat};

use crate::Failure;
use crate::collect;
use crate::config::{Configuration, Sinks, SourceOptions};
use crate::names::NamesOptions;
use crate::prometheus::Options;
use crate::{console, files, kafka};

/// Paths that any process reads: libraries, time zones, host names, interfaces and its own state.
const COMMON: &[&str] = &[
    "/dev/null",
    "/dev/urandom",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/lib",
    "/lib64",
    "/proc",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sys",
    "/usr/lib",
    "/usr/share",
];

/// Where these files are replaced by others, which a rule on the files themselves would not reach.
/// Root could read all secrets there.
const UNLESS_ROOT: &str = "/etc";

/// The rights this version knows. An older kernel enforces those it knows.
const RIGHTS: ABI = ABI::V6;

/// Mode bits of folders in which users other than the owner may create files.
const OTHERS_WRITE: u32 = 0o022;

/// The files and folders of a configuration, as absolute paths.
pub(super) struct Places {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

impl Places {
    /// The places of a configuration read from `file`. Editors may replace a file, so its folder is
    /// included.
    pub(super) fn of(configuration: &Configuration, file: &Path) -> Self {
        let Configuration { agent, sources, sinks, names, .. } = configuration;
        let replays = sources.iter().filter_map(|source| match source {
            SourceOptions::Interface(_) | SourceOptions::Records(_) => None,
            SourceOptions::Replay(replay) => Some(&*replay.replay),
        });
        let read = [file].into_iter().chain(replays).chain(agent.seed.as_deref());
        Self::with_outputs(read, &agent.data, sinks, names)
    }

    /// The places of a collector's configuration.
    pub(super) fn of_collector(configuration: &collect::Configuration, file: &Path) -> Self {
        let collect::Configuration { collect, kafka, sinks, names, .. } = configuration;
        let credentials = kafka.files();
        let read =
            [file, &collect.seed].into_iter().chain(credentials.iter().map(PathBuf::as_path));
        Self::with_outputs(read, &collect.data, sinks, names)
    }

    /// The folders of files that are read, the data folder, and the paths of sinks and names.
    fn with_outputs<'a>(
        read: impl Iterator<Item = &'a Path>,
        data: &Path,
        sinks: &Sinks,
        names: &NamesOptions,
    ) -> Self {
        let prometheus = sinks.prometheus.as_ref().map(Options::access);
        let console = sinks.console.as_ref().map(console::Options::access);
        let access = [prometheus.as_ref(), console.as_ref()];
        let tokens = access.into_iter().flatten().filter_map(|access| access.token_file.as_deref());
        let credentials = sinks.kafka.iter().flat_map(kafka::Options::files);
        let names = names.prefixes.iter().chain(&names.databases).map(PathBuf::as_path);
        let read = read.map(folder_of);
        let read = read.chain(tokens.chain(credentials).chain(names).map(folder_of)).collect();
        let reports = sinks.files.as_ref().map(|options| files::folder(&options.path));
        let archive = sinks.parquet.as_ref().map(|options| options.path.clone());
        let write = [Some(data.to_owned()), reports, archive].into_iter().flatten();
        let write = write.map(|folder| absolute(&folder)).collect();
        Self { read, write }
    }

    /// Creates the folders to write to, owned by this user.
    ///
    /// # Errors
    /// When a folder cannot be created, or belongs to another user only.
    pub(super) fn make(&self, user: Option<&User>) -> Result<(), Failure> {
        for folder in &self.write {
            let failed = |error: io::Error| {
                Failure::Output(format!("cannot make the folder {}: {error}", folder.display()))
            };
            let missing = folder.ancestors().take_while(|folder| !folder.exists());
            let missing: Vec<_> = missing.map(Path::to_owned).collect();
            if let (Some(user), Ok(there)) = (user, fs::metadata(folder))
                && there.uid() != user.uid.as_raw()
                && there.mode() & OTHERS_WRITE == 0
            {
                let (folder, name) = (folder.display(), &user.name);
                return Err(Failure::Output(format!(
                    "{folder} does not belong to user '{name}'; run 'chown -R {name} {folder}'"
                )));
            }
            let there = folder.ancestors().nth(missing.len()).unwrap_or(Path::new("/"));
            create(there, missing.iter().rev(), user).map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }

    /// Confines this thread and the threads it starts. Returns a description for the log.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn enforce(&self, is_root: bool) -> Result<String, RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let unless_root = (!is_root).then_some(&UNLESS_ROOT);
        let common = COMMON.iter().chain(unless_root).map(PathBuf::from);
        let status = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RIGHTS))?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(self.read.iter().cloned().chain(common), read))?
            .add_rules(path_beneath_rules(["/dev/null"], read | AccessFs::WriteFile))?
            .add_rules(path_beneath_rules(
                &self.write,
                AccessFs::from_all(RIGHTS) & !AccessFs::Execute,
            ))?
            .restrict_self()?;
        Ok(match status.ruleset {
            RulesetStatus::FullyEnforced => "Landlock".to_owned(),
            RulesetStatus::PartiallyEnforced => {
                "Landlock as far as this kernel supports it".to_owned()
            }
            RulesetStatus::NotEnforced => "no Landlock in this kernel".to_owned(),
        })
    }

    /// The first path that is not within `others`.
    pub(super) fn beyond<'a>(&'a self, others: &Self) -> Option<&'a Path> {
        let within = |place: &Path, of: &[PathBuf]| of.iter().any(|own| place.starts_with(own));
        let is_read =
            |place: &&PathBuf| within(place, &others.read) || within(place, &others.write);
        let read = self.read.iter().find(|place| !is_read(place));
        let write = self.write.iter().find(|place| !within(place, &others.write));
        read.or(write).map(PathBuf::as_path)
    }
}

/// Creates folders, each in the one before it and the first one in `parent`. The user gets them.
///
/// The user may change any folder as soon as it is theirs, so each is reached from the one before,
/// and never by a symbolic link.
fn create<'a>(
    parent: &Path,
    folders: impl Iterator<Item = &'a PathBuf>,
    user: Option<&User>,
) -> rustix::io::Result<()> {
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut parent = open(parent, folder, Mode::empty())?;
    for name in folders.map(|folder| folder.file_name().unwrap_or(OsStr::new(".."))) {
        mkdirat(&parent, name, Mode::from_raw_mode(0o777))?;
        parent = give(&parent, name, user)?;
    }
    Ok(())
}

/// Opens a folder in another one, and gives it to the user.
fn give(parent: &OwnedFd, name: &OsStr, user: Option<&User>) -> rustix::io::Result<OwnedFd> {
    let folder = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, folder, Mode::empty())?;
    if let Some(User { uid, gid, .. }) = user {
        let (uid, gid) = (Uid::from_raw(uid.as_raw()), Gid::from_raw(gid.as_raw()));
        fchown(&folder, Some(uid), Some(gid))?;
        fchmod(&folder, Mode::from_raw_mode(0o750))?;
    }
    Ok(folder)
}

/// The folder of a file.
fn folder_of(file: &Path) -> PathBuf {
    let file = absolute(file);
    file.parent().map_or(file.clone(), Path::to_owned)
}

/// The path made absolute.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_are_given_to_the_user_and_links_are_not_followed() {
        let root = std::env::temp_dir().join(format!("flowgauge-places-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        let user = User::from_uid(nix::unistd::Uid::effective()).unwrap().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let deep = root.join("a/b");
        Places { read: Vec::new(), write: vec![deep.clone()] }.make(Some(&user)).unwrap();
        assert_eq!([mode(&root.join("a")), mode(&deep)], [0o750; 2]);
        // The user puts a link in the place of a folder that was just made.
        let other = root.join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&other, root.join("link")).unwrap();
        let parent = open(&root, OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert!(give(&parent, OsStr::new("link"), Some(&user)).is_err());
        assert_eq!(mode(&other), 0o700);
        fs::remove_dir_all(root).unwrap();
    }

    /// Names of hosts are resolved by files that any process may replace by new ones.
    #[test]
    fn only_root_is_kept_from_new_files_of_the_system() {
        let read_users = |is_root: bool| {
            let confined = std::thread::spawn(move || {
                let places = Places { read: Vec::new(), write: Vec::new() };
                let status = places.enforce(is_root).unwrap();
                (status.starts_with("Landlock"), fs::read("/etc/passwd").is_ok())
            });
            confined.join().unwrap()
        };
        assert!(read_users(false).1);
        let (confined, reads) = read_users(true);
        assert_eq!(reads, !confined);
    }
}
