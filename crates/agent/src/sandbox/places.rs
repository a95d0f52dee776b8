//! The files and folders that an agent may use, enforced by Landlock.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::unistd::User;

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
    "/run/systemd/resolve",
    "/sys",
    "/usr/lib",
    "/usr/share",
];

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
            let failed = |error| {
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
            for folder in missing.iter().rev() {
                fs::create_dir(folder).map_err(failed)?;
                if let Some(User { uid, gid, .. }) = user {
                    chown(folder, Some(uid.as_raw()), Some(gid.as_raw())).map_err(failed)?;
                    fs::set_permissions(folder, Permissions::from_mode(0o750)).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Confines this thread and the threads it starts. Returns a description for the log.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn enforce(&self) -> Result<String, RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let common = COMMON.iter().map(PathBuf::from);
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

/// The folder of a file.
fn folder_of(file: &Path) -> PathBuf {
    let file = absolute(file);
    file.parent().map_or(file.clone(), Path::to_owned)
}

/// The path made absolute.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
