//! Executes a command and kills it at a system call of one's choice, by `ptrace`.

use crate::sandbox::Said;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What became of a command.
pub struct Traced {
    pub said: Said,
    /// The system calls by which it changes something, up to its end: writes, syncs, names, processes.
    pub calls: u64,
    /// The number of the one before which it was killed.
    pub killed_before: Option<i64>,
}

/// Executes a command to its end, or kills it (SIGKILL) before its `n`-th system call that changes something, from 1. Its threads count together,
/// its child processes not. None where this machine lets nobody trace.
#[expect(unsafe_code, reason = "between fork and exec one system call is made, and nothing else")]
pub fn traced(mut command: Command, n: Option<u64>) -> Option<Traced> {
    let [mut out, mut err] = std::array::from_fn(|_| tempfile::tempfile().unwrap());
    command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    // SAFETY: `traceme` is one system call, which allocates nothing and takes no lock.
    let spawned = unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) }.spawn();
    let leader = match spawned {
        Ok(child) => Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return None,
        Err(error) => panic!("{error}"),
    };
    let mut known = BTreeSet::new();
    let (mut calls, mut killed_before) = (0, None);
    let code = loop {
        // Children of this thread alone: other tests have theirs.
        let status = waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap();
        let (pid, signal) = match status {
            WaitStatus::Exited(pid, code) if pid == leader => break Some(code),
            WaitStatus::Signaled(pid, _, _) if pid == leader => break None,
            WaitStatus::PtraceSyscall(pid) => {
                let changes = changing_call(pid);
                calls += u64::from(changes.is_some());
                if changes.is_some() && Some(calls) == n {
                    kill(leader, Signal::SIGKILL).unwrap();
                    killed_before = changes;
                }
                (pid, None)
            }
            WaitStatus::PtraceEvent(pid, _, _) => (pid, None),
            // The first stop of a thread is of the tracing, as is the one after exec.
            WaitStatus::Stopped(pid, signal) if !known.insert(pid) => (pid, Some(signal)),
            WaitStatus::Stopped(pid, _) => {
                if pid == leader {
                    ptrace::setoptions(
                        pid,
                        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL,
                    )
                    .unwrap();
                }
                (pid, None)
            }
            _ => continue,
        };
        // One that was killed is not there any more.
        let _ = ptrace::syscall(pid, signal);
    };
    let text = |file: &mut std::fs::File| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    Some(Traced { said: Said { out: text(&mut out), err: text(&mut err), code }, calls, killed_before })
}

/// The number of the system call that a thread is about to make, if that call changes something.
#[expect(unsafe_code, reason = "the kernel says which part of the union it has filled in")]
fn changing_call(pid: Pid) -> Option<i64> {
    // A thread may have been killed meanwhile.
    let info = ptrace::syscall_info(pid).ok()?;
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: `op` says that it is the entry of a system call.
    let entry = unsafe { info.u.entry };
    let number = entry.nr.cast_signed();
    let creates = |flags: u64| flags & u64::from((libc::O_CREAT | libc::O_TRUNC).cast_unsigned()) != 0;
    let changes = match number {
        libc::SYS_open => creates(entry.args[1]),
        libc::SYS_openat => creates(entry.args[2]),
        // What is printed is in no file.
        libc::SYS_write | libc::SYS_writev if entry.args[0] <= 2 => false,
        _ => CHANGES.contains(&number),
    };
    changes.then_some(number)
}

const CHANGES: [i64; 33] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_kill,
];
