//! A worker's process, its events and its output.

use super::backlog::Backlog;
use super::bound::{Bound, Launch};
use super::container::{self, Contained, ContainerError, Image, Start};
use super::kernels::InUse;
use super::place::Place;
use super::said::no_events;
use crate::host::clock::Moment;
use crate::host::secrets::redacted;
use crate::host::user_key::UserKey;
use crate::host::{clock, files, process};
use crate::record::{Entry, Exit, Table, Value};
use crate::wire::{MAX_EVENT_BYTES, parse_line, to_json_line};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Further rejected lines are only counted, so that a worker that writes rubbish does not fill the disk.
const MAX_REJECTED: usize = 1000;
/// The limit of output after a worker's end. More than the pipes had is of a process that outlives it.
const MAX_LATE_BYTES: usize = 8 << 20;
const SHOWN_CHARS: usize = 200;
/// How long to read events after a worker has ended.
const EVENTS_GRACE: Duration = Duration::from_secs(60);
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Starts workers: this program, with its hidden command `worker`.
///
/// It is a shim that ties its life to the supervisor's before it executes the requested program.
#[derive(Clone, Debug)]
pub struct Shim {
    /// The executable.
    pub executable: PathBuf,
    /// The folder for changed GPU settings.
    pub restore: Place,
    /// The key that marks attempts as executed by this user, if there is one.
    pub key: Option<UserKey>,
}

impl Shim {
    /// The command that starts the shim.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        // Shows a readable name in lists of processes instead of the path of the executable.
        command.arg0(process::NAME);
        command
    }

    /// Checks that this program's file is still at its path, where a container program must find it.
    ///
    /// # Errors
    /// If another file or none is there now.
    pub(super) fn check_path(&self) -> Result<(), ContainerError> {
        let path = self.path();
        let is_there = process::is_same_file(&path, &self.executable);
        if is_there { Ok(()) } else { Err(ContainerError::Replaced(path)) }
    }

    /// The path of this program. Its own name for its file, in `/proc/self`, would mean another file to another
    /// program.
    fn path(&self) -> PathBuf {
        let own = || process::own_path().ok().filter(|_| self.executable == Path::new(process::OWN_FILE));
        own().unwrap_or_else(|| self.executable.clone())
    }
}

/// How and when a worker ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) exit: Exit,
    pub(super) at: Moment,
}

/// A worker that was started.
pub(super) struct Worker {
    /// `None` for an attached process, which is neither signalled nor waited for.
    child: Option<Child>,
    pid: u32,
    /// Whether the child is a guard that stays alive while the program runs.
    is_guarded: bool,
    fifo: PathBuf,
    gate: Arc<File>,
    end_mark: String,
    backlog: Arc<Backlog>,
    pumps: Vec<JoinHandle<()>>,
    ended: Arc<OnceLock<Ended>>,
    waiter: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the worker of a run, in its container if it has one. It writes its events to a named pipe at this path.
    pub(super) fn start<'a>(
        shim: &Shim,
        bound: &Bound,
        kernels: Option<&InUse>,
        contained: Option<&Contained>,
        fifo: &Path,
        variables: impl Iterator<Item = &'a (&'static str, OsString)>,
    ) -> io::Result<Self> {
        let mut command = shim.command();
        command.arg("worker");
        match (contained, &bound.launch) {
            (Some(contained), _) => {
                command.args(["--guard", "--"]).args(&contained.argv);
                for name in &contained.unset {
                    command.env_remove(name);
                }
                command.envs(contained.set.iter().map(|(name, value)| (name, value)));
            }
            (None, launch) => {
                command.envs(told(bound, kernels)).env("LEDGER_EVENTS", fifo);
                command.envs(variables.map(|(name, value)| (name, value)));
                if let Launch::Program { argv, directory } = launch {
                    command.arg("--").args(argv).current_dir(directory);
                } else if let Some(kernels) = kernels {
                    command.current_dir(&kernels.workplace);
                }
            }
        }
        let input = (bound.launch == Launch::Trainer).then(|| cell_json(bound));
        let mut worker = Self::launch(command, input.as_deref(), fifo)?;
        worker.is_guarded = contained.is_some();
        Ok(worker)
    }

    /// Starts a command as a worker, with this standard input. The caller has told it the path of the named pipe for
    /// its events.
    pub(super) fn launch(mut command: Command, input: Option<&str>, fifo: &Path) -> io::Result<Self> {
        let gate = gate(fifo)?;
        command.env("LEDGER_SUPERVISOR_PID", std::process::id().to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        // Everything that can fail comes before the process is started.
        let events = gate.try_clone()?;
        let mut child = command.spawn()?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            // If the worker died at once, its exit code shows why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let pid = child.id();
        let mut worker = Self::listening(pid, fifo, (gate, events));
        let seen = Arc::clone(&worker.ended);
        // A separate thread records the time of the end without delay.
        worker.waiter = Some(std::thread::spawn(move || {
            // A process that cannot be waited for is gone.
            let exit = process::await_end(pid).unwrap_or(Exit::Code(-1));
            let _ = seen.set(Ended { exit, at: Moment::now() });
        }));
        if let Some(stdout) = child.stdout.take() {
            let to = Arc::clone(&worker.backlog);
            worker.pumps.push(std::thread::spawn(move || pump_output(stdout, &to, Entry::Stdout)));
        }
        if let Some(stderr) = child.stderr.take() {
            let to = Arc::clone(&worker.backlog);
            worker.pumps.push(std::thread::spawn(move || pump_output(stderr, &to, Entry::Stderr)));
        }
        worker.child = Some(child);
        Ok(worker)
    }

    /// Attaches to a process that already runs. It writes its events to a named pipe at this path. Its output and its
    /// end are not observed.
    pub(super) fn attach(pid: u32, fifo: &Path) -> io::Result<Self> {
        let gate = gate(fifo)?;
        let events = gate.try_clone()?;
        Ok(Self::listening(pid, fifo, (gate, events)))
    }

    /// Starts to read the events of a process.
    fn listening(pid: u32, fifo: &Path, (gate, events): (File, File)) -> Self {
        let ended = Arc::<OnceLock<Ended>>::default();
        let end_mark = format!("#end {}", std::process::id());
        let backlog = Arc::<Backlog>::default();
        let (mark, to, end) = (end_mark.clone(), Arc::clone(&backlog), Arc::clone(&ended));
        let pump = std::thread::spawn(move || pump_events(events, &mark, &end, &to));
        Self {
            child: None,
            pid,
            is_guarded: false,
            fifo: fifo.to_owned(),
            gate: Arc::new(gate),
            end_mark,
            backlog,
            pumps: vec![pump],
            ended,
            waiter: None,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.get().copied()
    }

    /// The next entries, up to one turn. Waits for them up to `patience`.
    pub(super) fn receive(&self, patience: Duration) -> Vec<Entry> {
        self.backlog.take(patience)
    }

    /// Signals the worker and its process group. A guard passes signals on.
    pub(super) fn signal(&self, signal: process::Signal) {
        if self.child.is_none() {
            return;
        }
        let is_for_all = !self.is_guarded || signal == process::Signal::Kill;
        let target = if is_for_all { process::Target::Group(self.pid) } else { process::Target::Process(self.pid) };
        // Errors are ignored, because the process may be gone.
        let _ = process::signal(target, signal);
    }

    /// Cleans up after the worker's end: kills its remaining processes, and returns the remaining entries in the pipes.
    pub(super) fn finish(mut self) -> Vec<Entry> {
        self.signal(process::Signal::Kill);
        // The process has ended, so reaping it does not block. After that its pid may be reused.
        let _ = self.waiter.take().map(JoinHandle::join);
        let _ = self.child.as_mut().map(Child::wait);
        let (mark, gate) = (format!("\n{}\n", self.end_mark), Arc::clone(&self.gate));
        // Written by a thread, because a full pipe has room only once the loop below reads from it.
        std::thread::spawn(move || (&*gate).write_all(mark.as_bytes()));
        let (mut rest, mut late) = (Vec::new(), 0);
        // The first thread reads events and always ends at the mark, however slow the machine. The others may not end:
        // a process that left the group may keep a pipe open. Its later output does not belong to the attempt.
        let ended = Instant::now();
        let events_in = |pumps: &[JoinHandle<()>]| pumps.first().is_none_or(JoinHandle::is_finished);
        while !events_in(&self.pumps) && ended.elapsed() < EVENTS_GRACE
            || !self.pumps.iter().all(JoinHandle::is_finished) && ended.elapsed() < OUTPUT_GRACE
        {
            rest.extend(self.receive(Duration::from_millis(10)).into_iter().filter(|entry| {
                let (Entry::Stdout(text) | Entry::Stderr(text)) = entry else { return true };
                late += text.len();
                late <= MAX_LATE_BYTES
            }));
        }
        if !events_in(&self.pumps) {
            rest.push(Entry::Warning("the last events were not read in time and are lost".to_owned()));
        }
        rest.extend(self.backlog.close());
        let _ = std::fs::remove_file(&self.fifo);
        rest
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A thread that still adds entries must not wait for room.
        drop(self.backlog.close());
        let _ = std::fs::remove_file(&self.fifo);
    }
}

/// The command of a worker in an image.
pub(super) fn contain(image: &Image, shim: &Shim, bound: &Bound, kernels: Option<&InUse>, fifo: &Path) -> Contained {
    let scratch = container::scratch();
    let executable = shim.path();
    let program = match &bound.launch {
        Launch::Program { argv, directory } => Some((argv.as_slice(), directory.as_path())),
        // An attached process does not run in an image.
        Launch::Trainer | Launch::Attached(_) => None,
    };
    image.contain(&Start {
        program,
        named_files: bound.named_files(),
        data: bound.cell.text("data.path").map(Path::new),
        has_gpus: !bound.gpus.is_empty(),
        executable: &executable,
        fifo,
        kernels,
        scratch: &scratch,
        told: told(bound, kernels),
    })
}

/// The environment variables of a worker, except that for its events.
fn told(bound: &Bound, kernels: Option<&InUse>) -> Vec<(&'static str, OsString)> {
    let mut told: Vec<(&'static str, OsString)> = vec![
        ("LEDGER_RUN", bound.run.id.to_string().into()),
        // The order of the GPUs in the run's identity.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()),
        // Only the GPUs of the run's identity, by UUID, because indices differ between processes.
        ("CUDA_VISIBLE_DEVICES", visible(bound).into()),
    ];
    if let Some(kernels) = kernels {
        told.push(("LEDGER_KERNELS_TUNED", u8::from(kernels.tuned).to_string().into()));
        // The driver's cache of compiled kernels is stored with the kernels, or not at all.
        told.push(match kernels.tuned {
            true => ("CUDA_CACHE_PATH", kernels.cache.driver_cache().into()),
            false => ("CUDA_CACHE_DISABLE", "1".into()),
        });
        // By default NCCL chooses the order of additions by a model of times.
        if kernels.is_pinned() && bound.gpus.len() > 1 {
            told.extend([("NCCL_ALGO", "Ring".into()), ("NCCL_PROTO", "Simple".into())]);
        }
    }
    told
}

fn visible(bound: &Bound) -> String {
    bound.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>().join(",")
}

fn cell_json(bound: &Bound) -> String {
    let cell: Table = [
        ("config".to_owned(), Value::Table(bound.cell.config.clone())),
        ("settings".to_owned(), Value::Table(bound.cell.settings.clone())),
        ("seed".to_owned(), bound.cell.seed.to_string().into()),
    ]
    .into();
    to_json_line(&cell.into())
}

/// Creates the pipe and opens it in both directions, so that the open does not block, and the reader sees no end of
/// file.
fn gate(fifo: &Path) -> io::Result<File> {
    files::fifo(fifo).map_err(io::Error::other)?;
    OpenOptions::new().read(true).write(true).open(fifo)
}

fn pump_events(mut from: File, end_mark: &str, end: &OnceLock<Ended>, to: &Backlog) {
    let mut lines = Lines::default();
    let mut rejected = 0;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let Ok(read) = from.read(&mut chunk) else { return };
        let read_ns = clock::monotonic_ns();
        // Lines that were in the pipe when the worker ended get the time of its end.
        let now_ns = end.get().map_or(read_ns, |end| read_ns.min(end.at.monotonic_ns));
        let mut entries = Vec::new();
        let mut ended = false;
        lines.split(&chunk[..read], |line| {
            if line == Err(TooLong) {
                rejected += 1;
                let reason = format!("it is longer than {MAX_EVENT_BYTES} bytes");
                entries.push(Entry::Rejected { line: "…".to_owned(), reason });
                return;
            }
            let line = line.unwrap_or_default();
            if line == end_mark.as_bytes() {
                ended = true;
            } else if !line.is_empty() && !ended {
                match parse_line(line, now_ns) {
                    Ok((event, more)) => entries.extend([Some(event), more].into_iter().flatten().map(Entry::Event)),
                    Err(fault) => {
                        rejected += 1;
                        if rejected <= MAX_REJECTED {
                            let line = redacted(&String::from_utf8_lossy(line)).chars().take(SHOWN_CHARS).collect();
                            entries.push(Entry::Rejected { line, reason: fault.to_string() });
                        }
                    }
                }
            }
        });
        if ended && rejected > MAX_REJECTED {
            entries.push(Entry::Warning(no_events(rejected)));
        }
        let closed = !entries.is_empty() && !to.add(entries, read);
        if ended || closed {
            return;
        }
    }
}

fn pump_output(mut from: impl Read, to: &Backlog, make: fn(String) -> Entry) {
    let mut chunk = vec![0; 64 << 10];
    let mut letters = Letters::default();
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        let text = letters.whole(&chunk[..read]);
        if !text.is_empty() && !to.add(vec![make(text)], read) {
            return;
        }
    }
    if !letters.begun.is_empty() {
        to.add(vec![make(String::from_utf8_lossy(&letters.begun).into_owned())], letters.begun.len());
    }
}

/// Decodes a stream as UTF-8, independent of the borders of its chunks.
#[derive(Default)]
struct Letters {
    /// The bytes of an incomplete character.
    begun: Vec<u8>,
}

impl Letters {
    /// The complete characters so far. Invalid bytes are replaced.
    fn whole(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        self.begun = all.split_off(all.len() - begun_bytes(&all));
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// The number of trailing bytes that begin an incomplete character.
fn begun_bytes(bytes: &[u8]) -> usize {
    let begins = |count: &usize| {
        let tail = bytes.len().checked_sub(*count).map(|from| std::str::from_utf8(&bytes[from..]));
        matches!(tail, Some(Err(fault)) if fault.valid_up_to() == 0 && fault.error_len().is_none())
    };
    (1..char::MAX.len_utf8()).find(begins).unwrap_or(0)
}

/// A line beyond the limit.
#[derive(Debug, PartialEq, Eq)]
struct TooLong;

/// Splits a stream into lines, independent of the borders of its chunks.
#[derive(Default)]
struct Lines {
    partial: Vec<u8>,
    skipping: bool,
}

impl Lines {
    fn split(&mut self, mut bytes: &[u8], mut line: impl FnMut(Result<&[u8], TooLong>)) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(at);
            bytes = &rest[1..];
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.partial.is_empty() && head.len() <= MAX_EVENT_BYTES {
                line(Ok(head));
            } else if self.partial.len() + head.len() <= MAX_EVENT_BYTES {
                self.partial.extend_from_slice(head);
                line(Ok(&self.partial));
            } else {
                line(Err(TooLong));
            }
            self.partial.clear();
        }
        if self.skipping {
            return;
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > MAX_EVENT_BYTES {
            line(Err(TooLong));
            self.partial.clear();
            self.skipping = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        chunks.iter().for_each(|chunk| lines.split(chunk, |line| out.push(line.ok().map(<[u8]>::to_vec))));
        out
    }

    proptest! {
        #[test]
        fn borders_of_chunks_do_not_matter(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..60), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len() + 1);
            let whole: Vec<Option<Vec<u8>>> = split(&[&bytes]);
            prop_assert_eq!(split(&[&bytes[..cut], &bytes[cut..]]), whole);
        }
    }

    const LINE: &str = r#"{"event":"status","message":"still at it"}"#;

    fn shell(script: &str, fifo: &Path) -> Worker {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("LEDGER_EVENTS", fifo).env("LINE", LINE);
        Worker::launch(command, None, fifo).unwrap()
    }

    fn end_of(worker: &Worker) -> Ended {
        let since = Instant::now();
        while worker.ended().is_none() {
            assert!(since.elapsed() < Duration::from_secs(30), "its end was not seen");
            std::thread::sleep(Duration::from_millis(1));
        }
        worker.ended().unwrap()
    }

    #[test]
    fn the_time_of_the_end_is_exact_and_earlier_events_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let worker = shell(r#"yes "$LINE" | head -n 10000 >> "$LEDGER_EVENTS"; exit 3"#, &dir.path().join("events"));
        let ended = end_of(&worker);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(ended.exit, Exit::Code(3));
        assert!(ended.at.monotonic_ns + 50_000_000 <= clock::monotonic_ns());
        let rest = worker.finish();
        assert_eq!(rest.len(), 10_000);
        // A line that is read while the end is recorded can be stamped after it.
        let latest_ns = ended.at.monotonic_ns + 10_000_000;
        let is_before = |entry: &Entry| matches!(entry, Entry::Event(event) if event.t_ns <= latest_ns);
        assert!(rest.iter().all(is_before));
    }

    #[test]
    fn a_worker_that_writes_too_much_is_blocked_and_can_be_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (events, begun) = (dir.path().join("events"), dir.path().join("events.begun"));
        let worker = shell(r#": > "$LEDGER_EVENTS.begun"; exec yes "$LINE" >> "$LEDGER_EVENTS""#, &events);
        let since = Instant::now();
        while !begun.exists() {
            assert!(since.elapsed() < Duration::from_secs(30), "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(worker.ended().is_none());
        worker.signal(process::Signal::Kill);
        assert_eq!(end_of(&worker).exit, Exit::Signal(9));
        let turn = worker.receive(Duration::from_secs(30)).len();
        assert!(turn > 0 && turn * LINE.len() <= 128 << 10, "{turn}");
        let rest = worker.finish().len();
        assert!(rest > 0 && rest * LINE.len() < 8 << 20, "{rest}");
    }

    /// A reader that returns its bytes in pieces of this length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(into.len());
            let (piece, rest) = self.0.split_at(length);
            into[..length].copy_from_slice(piece);
            self.0 = rest;
            Ok(length)
        }
    }

    #[test]
    fn characters_do_not_depend_on_the_borders_of_chunks() {
        let told = |output: &[u8], length: usize| {
            let backlog = Backlog::default();
            pump_output(Pieces(output, length), &backlog, Entry::Stdout);
            let texts = backlog.close().into_iter().map(|entry| match entry {
                Entry::Stdout(text) => text,
                other => panic!("{other:?}"),
            });
            texts.collect::<String>()
        };
        let text = "Fehler: großes Problem │██▌  │ 𝄞 é";
        for length in 1..=text.len() {
            assert_eq!(told(text.as_bytes(), length), text, "{length}");
        }
        // Invalid bytes and an incomplete character at the end are replaced.
        assert_eq!(told(b"a\xff\xe2\x94b\xe2\x94", 1), "a\u{fffd}\u{fffd}b\u{fffd}");
    }

    #[test]
    fn endless_output_of_a_surviving_process_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let worker = shell("echo mine; setsid yes not mine & exit 0", &dir.path().join("events"));
        end_of(&worker);
        let rest = worker.finish();
        let bytes: usize = rest.iter().map(|entry| if let Entry::Stdout(text) = entry { text.len() } else { 0 }).sum();
        assert!(bytes > 0 && bytes < MAX_LATE_BYTES + (8 << 20), "{bytes}");
    }

    #[test]
    fn this_program_is_started_by_its_name_whatever_lies_at_its_path() {
        let name = concat!(module_path!(), "::what_this_process_is_called");
        let name = name.split_once("::").map_or(name, |(_, name)| name);
        let shim = Shim { executable: process::OWN_FILE.into(), restore: Place::usual(), key: None };
        let said = shim.command().args(["--ignored", "--exact", name, "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("called ledger, in the list ledger"), "{said}");
        shim.check_path().unwrap();
    }

    #[test]
    #[ignore = "the child of `this_program_is_started_by_its_name_whatever_lies_at_its_path`"]
    fn what_this_process_is_called() {
        process::take_name();
        let listed = std::fs::read_to_string("/proc/self/comm").unwrap();
        println!("called {}, in the list {}", std::env::args().next().unwrap(), listed.trim());
    }

    #[test]
    fn a_line_beyond_the_limit_is_refused_once_and_the_next_one_is_read() {
        let long = vec![b'x'; MAX_EVENT_BYTES + 1];
        assert_eq!(split(&[&long, &long, b"\nnext\n"]), [None, Some(b"next".to_vec())]);
        let one = [long.as_slice(), b"\nnext\n"].concat();
        assert_eq!(split(&[&one]), [None, Some(b"next".to_vec())]);
    }
}
