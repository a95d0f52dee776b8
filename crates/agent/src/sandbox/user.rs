//! The user an agent runs as, and the capabilities it gives up.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use nix::unistd::{Uid, User, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::Failure;

/// Capabilities that AF_XDP needs: packet sockets, loading and attaching kernel programs, and
/// locked memory.
const FOR_XDP: CapabilitySet = CapabilitySet::NET_RAW
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Looks up a user.
///
/// # Errors
/// When the user does not exist, or this process cannot become that user.
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
/// When the system refuses.
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
        (true, false) => "only the capability to read and write files of others",
        (true, true) => "only the capabilities for af-xdp and to read and write files of others",
        (false, false) => "no capabilities",
        (false, true) => "only the capabilities for af-xdp",
    };
    Ok(format!("user {name}, {capabilities}"))
}

/// Keeps only these capabilities, as far as the process has them.
///
/// # Errors
/// When the system refuses.
pub(super) fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    let kept = rustix::thread::capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}

/// Calls that start programs, inspect other processes, change mounts, modules or clocks, or gain
/// users, namespaces or keys.
const REFUSED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Refuses the calls to this thread and the threads it starts, with a permission error. `xdp`
/// leaves `bpf` for AF_XDP. Returns a description for the log.
///
/// # Errors
/// When the system refuses the filter.
pub(super) fn refuse(xdp: bool) -> Result<String, seccompiler::Error> {
    let Ok(arch) = TargetArch::try_from(ARCH) else {
        return Ok(format!("no seccomp for {ARCH}"));
    };
    let refused = REFUSED.iter().filter(|call| !(xdp && **call == libc::SYS_bpf));
    let calls: BTreeMap<_, _> = refused.map(|call| (*call, Vec::new())).collect();
    let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refusal, arch)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok("seccomp".to_owned())
}
