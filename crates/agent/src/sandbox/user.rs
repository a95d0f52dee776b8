//! The user an agent runs as, and the capabilities it gives up.

use nix::unistd::{Uid, User, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities,
};

use crate::failure::Failure;

/// Capabilities that AF_XDP needs: packet sockets, loading and attaching kernel programs, and
/// locked memory.
const FOR_XDP: CapabilitySet = CapabilitySet::NET_RAW
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Looks up a user.
///
/// # Errors
/// The user does not exist, or this process cannot become that user.
pub(super) fn find(name: &str) -> Result<User, Failure> {
    let usage = |reason: &str| Failure::Usage(format!("agent.user: {reason}"));
    let user = User::from_name(name)
        .map_err(|error| Failure::Failed(format!("agent.user: cannot look up {name}: {error}")))?
        .ok_or_else(|| {
            usage(&format!("there is no user '{name}'; create it, such as by useradd --system"))
        })?;
    if Uid::effective().is_root() || user.uid == Uid::effective() {
        return Ok(user);
    }
    Err(usage(&format!("only root can become '{name}'; start as root, or leave it out")))
}

/// Switches to this user, if given, and gives up all capabilities except, if `xdp`, those for
/// AF_XDP. If it stays root, it keeps its rights over files of others. Returns a description for
/// the log.
///
/// # Errors
/// The system refuses.
pub(super) fn become_user(user: Option<&User>, xdp: bool) -> Result<String, Failure> {
    let refused = |what: &'static str| {
        move |error: &dyn std::fmt::Display| {
            Failure::Failed(format!("sandbox: cannot give up {what}: {error}"))
        }
    };
    if let Some(User { uid, gid, .. }) = user.filter(|user| user.uid != Uid::effective()) {
        let refused = refused("the user");
        set_keep_capabilities(xdp).map_err(|error| refused(&error))?;
        setgroups(&[*gid]).map_err(|error| refused(&error))?;
        setresgid(*gid, *gid, *gid).map_err(|error| refused(&error))?;
        setresuid(*uid, *uid, *uid).map_err(|error| refused(&error))?;
    }
    let is_root = Uid::effective().is_root();
    let files = if is_root { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
    let kept = if xdp { files | FOR_XDP } else { files };
    let refused = refused("capabilities");
    clear_ambient_capability_set().map_err(|error| refused(&error))?;
    keep(kept).map_err(|error| refused(&error))?;
    let name = User::from_uid(Uid::effective()).ok().flatten();
    let name = name.map_or_else(|| Uid::effective().to_string(), |user| user.name);
    let capabilities = match (is_root, xdp) {
        (true, false) => "only the capability to read files of others",
        (true, true) => "capabilities for af-xdp and files of others",
        (false, false) => "no capabilities",
        (false, true) => "capabilities for af-xdp",
    };
    Ok(format!("user {name}, {capabilities}"))
}

/// Keeps only these capabilities, as far as the process has them.
///
/// # Errors
/// The system refuses.
pub(super) fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    let kept = rustix::thread::capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}
