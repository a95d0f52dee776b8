//! System calls that an agent never makes and the sandbox refuses.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

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
/// The system refuses the filter.
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
