//! Starts, signals, guards and awaits other processes.

use super::meter::tree;
use super::procfs::Stat;
use ledger_record::Exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    self, Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, pidfd_open,
    set_parent_process_death_signal, waitid,
};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The path by which a process reads its own program. Another file, or none, may lie at the original path by now.
pub const OWN_FILE: &str = "/proc/self/exe";
/// The displayed name of processes of this program.
pub const NAME: &str = "ledger";

/// Sets this process's name in the list of processes, which otherwise is the last part of the path that started it.
pub fn take_name() {
    // The name is for display only, so a failure does not matter.
    let _ = std::fs::write("/proc/self/comm", NAME);
}

/// Returns the path of this program's file, even if the file was removed or replaced.
///
/// # Errors
/// If the system does not report it.
pub fn own_path() -> io::Result<PathBuf> {
    Ok(unmarked(std::env::current_exe()?))
}

/// Removes the suffix ` (deleted)`, which the kernel appends to the path of a removed file.
fn unmarked(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(before) if !path.exists() => PathBuf::from(OsStr::from_bytes(before)),
        _ => path,
    }
}

/// Whether two paths lead to the same file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    number(one).is_some_and(|one| Some(one) == number(other))
}

/// Makes this process the leader of a new session, without a terminal.
///
/// # Errors
/// If it leads a process group already.
pub fn leave_session() -> io::Result<()> {
    process::setsid().map(drop).map_err(io::Error::from)
}

/// The signals that ledger sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGINT`: stop at the next suitable point.
    Interrupt,
    /// `SIGTERM`: stop now, in an orderly way.
    Terminate,
    /// `SIGKILL`: end at once; it cannot be caught.
    Kill,
}

impl Signal {
    fn raw(self) -> process::Signal {
        match self {
            Self::Interrupt => process::Signal::INT,
            Self::Terminate => process::Signal::TERM,
            Self::Kill => process::Signal::KILL,
        }
    }

    /// Returns the signal's number.
    pub fn number(self) -> i32 {
        self.raw().as_raw()
    }
}

/// The receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One process.
    Process(u32),
    /// Every process of the group with this leader.
    Group(u32),
}

/// Sends a signal. Returns false if no such process exists.
///
/// # Errors
/// If the process belongs to another user, or the id is 0 or 1, which would address many processes.
pub fn signal(target: Target, signal: Signal) -> io::Result<bool> {
    let sent = match target {
        Target::Process(pid) => kill_process(checked(pid)?, signal.raw()),
        Target::Group(pid) => kill_process_group(checked(pid)?, signal.raw()),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn checked(pid: u32) -> io::Result<Pid> {
    let valid = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    valid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{pid} is not the id of a single process")))
}

/// Makes the kernel kill the calling process (`SIGKILL`) as soon as its parent ends. Returns false if the parent has
/// ended already, is not the expected one, or is in an outer PID namespace. The caller should then exit.
///
/// Call it in a new process before its work. The setting survives [`exec`]. The kernel watches the **thread** that
/// started the process (prctl(2), `PR_SET_PDEATHSIG`), so start workers from a thread that lives as long as they do.
///
/// # Errors
/// If the kernel refuses.
pub fn die_with_parent(expected_parent_pid: u32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(process::Signal::KILL))?;
    // Checked afterwards: this detects a parent that ended before the call above, and the kernel one that ends later.
    let parent = process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    Ok(parent == Some(expected_parent_pid))
}

/// Replaces this process by another program, with exactly this environment. Returns only on failure.
///
/// `argv[0]` is searched for along the `PATH` of `env`. Signal handlers are reset to their defaults.
pub fn exec<A: AsRef<OsStr>, K: AsRef<OsStr>, V: AsRef<OsStr>>(
    argv: &[A],
    env: impl IntoIterator<Item = (K, V)>,
) -> io::Error {
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "there is no program to execute");
    };
    Command::new(program).args(arguments).env_clear().envs(env).exec()
}

/// The interval at which a guard checks whether its supervisor is alive.
const GUARDED_EVERY: Duration = Duration::from_millis(100);

/// Starts a program and waits for its end. If the parent ends first, kills the whole process group, including this
/// process.
///
/// It is for programs that [`die_with_parent`] cannot tie to their parent. A program that starts a container changes
/// its credentials, which clears the setting. This process must lead its group.
///
/// `SIGINT` and `SIGTERM` are forwarded, each once, to every process of the group inside the container. The container's
/// starter is skipped, because it would forward them a second time, unless there is no process inside yet.
///
/// # Errors
/// If the parent is not the expected one, or the program cannot be started.
pub fn guard<A: AsRef<OsStr>>(argv: &[A], expected_parent_pid: u32) -> io::Result<Exit> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no program to execute"));
    };
    let is_guarded = || std::os::unix::process::parent_id() == expected_parent_pid;
    let heard = [Signal::Interrupt, Signal::Terminate].map(|signal| (signal, Arc::<AtomicBool>::default()));
    for (signal, flag) in &heard {
        // Unlike an ignored signal, a handler is not inherited by the program.
        signal_hook::flag::register(signal.number(), Arc::clone(flag))?;
    }
    if !is_guarded() {
        return Err(io::Error::other("the supervisor is gone"));
    }
    let mut child = Command::new(program).args(arguments).spawn()?;
    loop {
        if await_end_within(child.id(), GUARDED_EVERY)?.is_some() {
            return child.wait().map(exit_of);
        }
        for (signal, _) in heard.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst)) {
            pass_on(child.id(), *signal)?;
        }
        if !is_guarded() {
            // Nothing below runs, because this process belongs to the group.
            signal(Target::Group(std::process::id()), Signal::Kill)?;
        }
    }
}

fn pass_on(starter: u32, what: Signal) -> io::Result<()> {
    let group = process::getpgrp();
    let own = namespaces(std::process::id()).map_or(1, |ids| ids.len());
    // The first process of a container forwards its signals, as the starter does.
    let is_inside = |pid: &u32| {
        let group_of = checked(*pid).ok().and_then(|pid| process::getpgid(Some(pid)).ok());
        let ids = namespaces(*pid).unwrap_or_default();
        group_of == Some(group) && ids.len() > own && ids.last().is_some_and(|id| *id != 1)
    };
    let inside: Vec<u32> = tree(std::process::id()).into_iter().filter(is_inside).collect();
    for pid in if inside.is_empty() { vec![starter] } else { inside } {
        // Fails if the process has ended or belongs to another user by now, which does not matter.
        let _ = signal(Target::Process(pid), what);
    }
    Ok(())
}

/// Kills the remaining processes of a group whose leader has ended. As its id may have been reused, at least one member
/// must have been started with that variable and a value for which `is_ours` holds. Members without the variable are
/// killed too. Returns whether the group was killed.
///
/// # Errors
/// If the processes cannot be listed.
pub fn end_left_group(leader: u32, variable: &str, is_ours: impl Fn(&OsStr) -> bool) -> io::Result<bool> {
    // `getpgid` cannot be used: it is 0 for kernel threads, on which rustix panics.
    let is_member = |pid: u32| Stat::of(pid).is_ok_and(|stat| stat.is_some_and(|stat| stat.group == leader));
    // During `exec` a process has no variables for a moment.
    for _ in 0..20 {
        let mut is_sure = true;
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if !is_member(pid) {
                continue;
            }
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            if has_variable(&variables, variable, &is_ours) {
                return signal(Target::Group(leader), Signal::Kill);
            }
            is_sure &= !variables.is_empty();
        }
        if is_sure {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

/// Returns the processes that were started with that variable and a value for which `is_ours` holds, each with its
/// command's name. Processes of other users are not visible.
pub fn started_with(variable: &str, is_ours: impl Fn(&OsStr) -> bool) -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let found = entries.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let variables = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let command = || std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        has_variable(&variables, variable, &is_ours).then(command)?.map(|command| (pid, command.trim_end().to_owned()))
    });
    found.collect()
}

/// Whether an environment, in the kernel's format, has that variable with a value for which `is_ours` holds.
fn has_variable(variables: &[u8], variable: &str, is_ours: impl Fn(&OsStr) -> bool) -> bool {
    let value = |text: &[u8]| {
        text.strip_prefix(variable.as_bytes())?.strip_prefix(b"=").map(|value| is_ours(OsStr::from_bytes(value)))
    };
    variables.split(|byte| *byte == 0).any(|text| value(text) == Some(true))
}

/// Returns the ids of a process in its PID namespaces, from this process's namespace inwards.
fn namespaces(pid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().map(|id| id.parse().ok()).collect()
}

/// Converts the exit code of a shell or container starter into how the process inside ended.
pub fn exit_of_shell_code(exit: Exit) -> Exit {
    match exit {
        Exit::Code(code @ 129..=192) => Exit::Signal(code - 128),
        exit => exit,
    }
}

/// Returns a shell's exit code for how a process ended: its code, or 128 plus the signal's number.
pub fn shell_code(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Returns the name of a signal, such as `SIGKILL` for 9, or `signal 40` if it has none.
pub fn signal_name(number: i32) -> Cow<'static, str> {
    signal_hook::low_level::signal_name(number).map_or_else(|| format!("signal {number}").into(), Cow::Borrowed)
}

/// Converts the standard library's exit status.
pub fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}

/// Returns how a child ended, or `None` while it runs. The child remains a zombie, so that its CPU time can still be
/// read.
///
/// # Errors
/// If it is not a child of this process, or has been reaped.
pub fn peek_end(pid: u32) -> io::Result<Option<Exit>> {
    ended(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG)
}

/// Waits until a child has ended, without reaping it, like [`peek_end`].
///
/// # Errors
/// As [`peek_end`].
pub fn await_end(pid: u32) -> io::Result<Exit> {
    loop {
        match ended(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(exit)) => return Ok(exit),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits until a child has ended, without reaping it, like [`peek_end`]. Returns `None` on a timeout or after a signal.
///
/// # Errors
/// As [`peek_end`].
pub fn await_end_within(pid: u32, timeout: Duration) -> io::Result<Option<Exit>> {
    match pidfd_open(checked(pid)?, PidfdFlags::empty()) {
        Ok(fd) => {
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Kernels before 5.3, and sandboxes that forbid the call.
        Err(Errno::NOSYS | Errno::PERM) => std::thread::sleep(timeout.min(Duration::from_millis(10))),
        Err(error) => return Err(error.into()),
    }
    peek_end(pid)
}

fn ended(pid: u32, options: WaitIdOptions) -> io::Result<Option<Exit>> {
    Ok(waitid(WaitId::Pid(checked(pid)?), options)?.as_ref().and_then(exit_of_wait))
}

fn exit_of_wait(status: &WaitIdStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_time_ns;
    use std::io::{Read, Write};
    use std::process::{ChildStdout, Stdio};

    fn shell(script: &str) -> std::process::Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        command.spawn().unwrap()
    }

    #[test]
    fn the_path_of_a_removed_program_has_no_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (lay, marked) = (dir.path().join("ledger"), dir.path().join("ledger (deleted)"));
        assert_eq!(unmarked(marked.clone()), lay);
        std::fs::write(&marked, "").unwrap();
        assert_eq!(unmarked(marked.clone()), marked, "a file may be called so");
        assert!(own_path().unwrap().is_file());
    }

    #[test]
    fn an_ended_child_can_be_inspected_before_it_is_reaped() {
        let mut child = shell("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 7");
        assert_eq!(await_end(child.id()).unwrap(), Exit::Code(7));
        assert_eq!(peek_end(child.id()).unwrap(), Some(Exit::Code(7)));
        assert!(cpu_time_ns(child.id()).unwrap() >= 10_000_000);
        assert_eq!(exit_of(child.wait().unwrap()), Exit::Code(7));
        assert!(peek_end(child.id()).is_err());
        assert_eq!(cpu_time_ns(child.id()), None);
    }

    #[test]
    fn killing_a_group_kills_its_children() {
        // The grandchild keeps the pipe open while it lives.
        let mut child = shell("sleep 1000 & echo on; wait");
        let pid = child.id();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(peek_end(pid).unwrap(), None);
        assert_eq!(await_end_within(pid, Duration::from_millis(1)).unwrap(), None);
        assert!(signal(Target::Group(pid), Signal::Kill).unwrap());
        let end = std::iter::repeat_with(|| await_end_within(pid, Duration::from_secs(5)).unwrap()).find_map(|end| end);
        assert_eq!(end, Some(Exit::Signal(9)));
        assert_closed(&mut output);
        assert_eq!(exit_of(child.wait().unwrap()), Exit::Signal(9));
        assert!(!signal(Target::Process(pid), Signal::Terminate).unwrap());
    }

    #[test]
    fn the_rest_of_a_group_is_killed_only_with_the_variable() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo on"]).env("LEDGER_TEST_PIPE", "/some/where/x.events").process_group(0);
        let mut leader = command.stdout(Stdio::piped()).spawn().unwrap();
        let pid = leader.id();
        let mut output = leader.stdout.take().unwrap();
        output.read_exact(&mut [0; 3]).unwrap();
        leader.wait().unwrap();
        let is = |name: &'static str| move |value: &OsStr| Path::new(value).file_name() == Some(name.as_ref());
        assert!(!end_left_group(pid, "LEDGER_TEST_PIPE", is("y.events")).unwrap());
        assert!(!end_left_group(pid, "LEDGER_TEST", is("x.events")).unwrap());
        assert!(end_left_group(pid, "LEDGER_TEST_PIPE", is("x.events")).unwrap());
        assert_closed(&mut output);
        assert!(!end_left_group(pid, "LEDGER_TEST_PIPE", is("x.events")).unwrap());
    }

    #[test]
    fn process_ids_that_address_many_processes_are_refused() {
        for pid in [0, 1, u32::MAX] {
            assert!(signal(Target::Process(pid), Signal::Interrupt).is_err(), "{pid}");
            assert!(signal(Target::Group(pid), Signal::Interrupt).is_err(), "{pid}");
        }
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(Signal::Kill.number()), "SIGKILL");
        assert_eq!(signal_name(Signal::Interrupt.number()), "SIGINT");
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(64), "signal 64");
    }

    /// Waits until the other end of a pipe has been closed by all processes.
    fn assert_closed(output: &mut ChildStdout) {
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&patience)), Ok(1), "somebody lives on");
        assert_eq!(output.read(&mut [0]).unwrap(), 0);
    }

    fn alone(body: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", &format!("process::tests::{body}"), "--test-threads=1"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Checks that the grandchild, which echoes as `cat`, ends when its parent, running this test body, is killed.
    fn assert_dies_with_its_parent(body: &str) {
        let mut parent = alone(body).spawn().unwrap();
        let mut input = parent.stdin.take().unwrap();
        let mut output = parent.stdout.take().unwrap();
        input.write_all(b"MARK\n").unwrap();
        let mut seen = String::new();
        let mut byte = [0];
        while !seen.contains("MARK\n") {
            assert_eq!(output.read(&mut byte).unwrap(), 1, "the grandchild did not become cat: {seen}");
            seen.push(char::from(byte[0]));
        }
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert_closed(&mut output);
        drop(input);
    }

    /// Grandchild `tied` becomes `cat`, which lives while its standard input is open, and this test keeps that open.
    #[test]
    fn a_tied_process_dies_with_its_parent_even_after_exec() {
        assert_dies_with_its_parent("parent");
    }

    #[test]
    #[ignore = "the child of `a_tied_process_dies_with_its_parent_even_after_exec`"]
    fn parent() {
        let mut tied = alone("tied").stdin(Stdio::inherit()).stdout(Stdio::inherit()).spawn().unwrap();
        tied.wait().unwrap();
    }

    #[test]
    #[ignore = "the grandchild of `a_tied_process_dies_with_its_parent_even_after_exec`"]
    fn tied() {
        let parent = std::os::unix::process::parent_id();
        assert!(!die_with_parent(parent + 1).unwrap());
        assert!(die_with_parent(parent).unwrap());
        // The setting belongs to the calling thread, which becomes the process in `exec`.
        panic!("{}", exec(&["cat"], [("PATH", "/usr/bin:/bin")]));
    }

    /// The guard survives signals sent to its group, and kills the group when its parent is killed.
    #[test]
    fn a_guarded_program_ends_with_its_parent() {
        assert_dies_with_its_parent("parent_of_a_guard");
    }

    #[test]
    #[ignore = "the child of `a_guarded_program_ends_with_its_parent`"]
    fn parent_of_a_guard() {
        let mut guard = alone("guarding");
        guard.stdin(Stdio::inherit()).stdout(Stdio::inherit()).process_group(0).spawn().unwrap().wait().unwrap();
    }

    #[test]
    #[ignore = "the grandchild of `a_guarded_program_ends_with_its_parent`"]
    fn guarding() {
        let parent = std::os::unix::process::parent_id();
        assert!(guard(&["true"], parent + 1).is_err());
        let passed_on = "trap 'exit 3' INT; kill -INT $PPID; while :; do sleep 0.01; done";
        assert_eq!(guard(&["sh", "-c", passed_on], parent).unwrap(), Exit::Code(3));
        let code = shell_code(guard(&["sh", "-c", "kill -9 $$"], parent).unwrap());
        assert_eq!((code, exit_of_shell_code(Exit::Code(code.into()))), (137, Exit::Signal(9)));
        assert_eq!([7, 128, 255].map(|code| exit_of_shell_code(Exit::Code(code))), [7, 128, 255].map(Exit::Code));
        panic!("{:?}", guard(&["cat"], parent));
    }

    #[test]
    fn exec_gives_exactly_this_environment() {
        let output = alone("printing").env("LEDGER_TEST_LEFT_BEHIND", "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("TAKEN=along"), "{text}");
        assert!(!text.contains("LEFT_BEHIND"), "{text}");
    }

    #[test]
    #[ignore = "the child of `exec_gives_exactly_this_environment`"]
    fn printing() {
        panic!("{}", exec(&["env"], [("PATH", "/usr/bin:/bin"), ("TAKEN", "along")]));
    }

    #[test]
    fn an_empty_or_missing_program_cannot_be_executed() {
        let nobody: [(&str, &str); 0] = [];
        assert_eq!(exec::<&str, _, _>(&[], nobody).kind(), io::ErrorKind::InvalidInput);
        assert_eq!(exec(&["/nonexistent/program"], nobody).kind(), io::ErrorKind::NotFound);
    }
}
