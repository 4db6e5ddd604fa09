//! A client of zeusd, the privileged daemon of the Zeus project, which changes GPU settings for users with access to
//! its socket.
//!
//! The interface is documented since version 0.3 (<https://ml.energy/zeus/zeusd/api/>): HTTP over a Unix socket,
//! parameters in the query, the same status codes for all calls. The daemon's GPU indices may differ from those in a
//! container. So a GPU is identified by its name and PCI address. If a daemon does not report addresses, it must see as
//! many GPUs as this process: then both number them in bus order.

use crate::gpu::{Change, GpuInfo};
use crate::host::environment;
use crate::record::{Table, Value};
use crate::wire::from_json;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The default sockets.
const USUAL: [&str; 2] = ["/run/zeusd/zeusd.sock", "/var/run/zeusd.sock"];
/// The time limit of a request. A change takes milliseconds, but the daemon may have to wake the driver first.
const PATIENCE: Duration = Duration::from_secs(20);
/// The largest answer that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The daemon behind a socket.
#[derive(Clone, Debug)]
pub(super) struct Zeusd {
    pub(super) socket: PathBuf,
    token: Option<String>,
}

/// The daemon did not make a change, or may not have made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unanswered {
    why: String,
    /// Whether it is certain that nothing was changed. If the answer was lost, the daemon may have made the change.
    pub(super) for_certain: bool,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The socket of the daemon, if there is one.
pub fn zeusd_socket() -> Option<PathBuf> {
    Zeusd::find().map(|zeusd| zeusd.socket)
}

impl Zeusd {
    /// The daemon at `$ZEUSD_SOCK_PATH` or a default socket, if that exists. `$ZEUSD_TOKEN` is sent to it.
    pub(super) fn find() -> Option<Self> {
        let named = environment::text_var("ZEUSD_SOCK_PATH").filter(|path| !path.is_empty()).map(PathBuf::from);
        let socket = match named {
            Some(named) => Some(named).filter(|path| path.exists()),
            None => USUAL.into_iter().map(PathBuf::from).find(|path| path.exists()),
        };
        let token = environment::text_var("ZEUSD_TOKEN").filter(|token| !token.is_empty());
        socket.map(|socket| Self { socket, token })
    }

    /// Changes a setting of a GPU. `of` is the number of GPUs that this process sees.
    ///
    /// # Errors
    /// If the change was not made or may not have been made.
    pub(super) fn change(&self, gpu: &GpuInfo, of: usize, change: Change) -> Result<(), Unanswered> {
        // Nothing can have changed before the next request.
        let id = self.id_of(gpu, of).map_err(|why| Unanswered { why, for_certain: true })?;
        let (path, more) = match change {
            Change::PowerLimit(mw) => ("set_power_limit", format!("&power_limit_mw={mw}")),
            Change::LockSmClock(mhz) => ("set_gpu_locked_clocks", clocks(mhz)),
            Change::FreeSmClock => ("reset_gpu_locked_clocks", String::new()),
            Change::LockMemoryClock(mhz) => ("set_mem_locked_clocks", clocks(mhz)),
            Change::FreeMemoryClock => ("reset_mem_locked_clocks", String::new()),
        };
        self.ask("POST", &format!("/gpu/{path}?gpu_ids={id}&block=true{more}")).map(drop)
    }

    /// The daemon's index of a GPU.
    fn id_of(&self, gpu: &GpuInfo, of: usize) -> Result<i64, String> {
        let body = self.ask("GET", "/discover").map_err(|unanswered| unanswered.why)?;
        let told = from_json(&body).map_err(|error| format!("its answer to /discover is not understood: {error}"))?;
        let told = told.as_table().ok_or("its answer to /discover is not a table")?;
        let list = |name: &str| match told.get(name) {
            Some(Value::List(items)) => items.clone(),
            _ => Vec::new(),
        };
        if !list("enabled_api_groups").iter().any(|group| group.as_str() == Some("gpu-control")) {
            return Err("its API group gpu-control is off (start it with that group enabled)".to_owned());
        }
        let gpus = list("gpus");
        let gpus: Vec<&Table> = gpus.iter().filter_map(Value::as_table).collect();
        let text = |table: &Table, name: &str| table.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |table: &Table| table.get("id").and_then(Value::as_int);
        let placed = gpus.iter().find(|table| text(table, "pci_address").is_some_and(|at| is_same_place(&at, gpu)));
        let silent = gpus.len() == of && gpus.iter().all(|table| !table.contains_key("pci_address"));
        let counted = gpus.iter().find(|table| silent && number(table) == Some(gpu.index.into()));
        let found = placed.or(counted).filter(|table| text(table, "name").as_deref() == Some(gpu.name.as_str()));
        found.and_then(|table| number(table)).ok_or_else(|| {
            format!("it has no GPU that is certain to be GPU {} ({}, {})", gpu.index, gpu.name, gpu.pci_bus_id)
        })
    }

    /// Sends a request, and returns the body of a successful answer.
    fn ask(&self, method: &str, path: &str) -> Result<String, Unanswered> {
        let unclear = |why: String| Unanswered { why, for_certain: false };
        let token = self.token.as_ref().map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: zeusd\r\nConnection: close\r\nContent-Length: 0\r\n{token}\r\n");
        let silent = |error: std::io::Error| format!("it does not answer: {error}");
        let stream =
            UnixStream::connect(&self.socket).map_err(|error| Unanswered { why: silent(error), for_certain: true })?;
        let (head, body) = exchange(stream, &request).map_err(|error| unclear(silent(error)))?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
        let status = status.ok_or_else(|| unclear("its answer is not HTTP".to_owned()))?;
        if status == 200 {
            return Ok(body);
        }
        let why = match status {
            401 => "it needs a token (set ZEUSD_TOKEN)",
            403 => "it may not do that itself, or its token does not allow it",
            404 => "it has no such call (its group gpu-control is off, or it is older than 0.3)",
            _ => "it refused",
        };
        let said: String = body.trim().chars().take(300).collect();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let why = format!("{why}, with status {status}{said}");
        Err(Unanswered { why, for_certain: (400..500).contains(&status) })
    }
}

/// Sends a request, and returns the head and the body of the answer. Reads to the end of the body, not of the
/// connection, which a daemon may leave open.
fn exchange(mut stream: UnixStream, request: &str) -> std::io::Result<(String, String)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = BufReader::new(stream.take(MOST_BYTES));
    let mut head = String::new();
    while answer.read_line(&mut head)? > 2 {}
    let named = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_ascii_lowercase())
        })
    };
    let mut body = Vec::new();
    if named("transfer-encoding").is_some_and(|how| how.contains("chunked")) {
        let mut text = String::new();
        // A chunk of length 0 is the last one.
        while answer.read_line(&mut text)? > 0 && !text.ends_with("\n0\r\n") && text != "0\r\n" {}
        return Ok((head, unchunked(&text)));
    }
    match named("content-length").and_then(|length| length.parse::<u64>().ok()) {
        Some(length) => answer.take(length).read_to_end(&mut body)?,
        None => answer.read_to_end(&mut body)?,
    };
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

fn clocks(mhz: u32) -> String {
    format!("&min_clock_mhz={mhz}&max_clock_mhz={mhz}")
}

/// Compares PCI addresses of different formats: `0000:3b:00.0` and NVML's `00000000:3B:00.0` are equal.
fn is_same_place(address: &str, gpu: &GpuInfo) -> bool {
    let plain = |text: &str| text.trim_start_matches('0').to_ascii_lowercase();
    plain(address) == plain(&gpu.pci_bus_id)
}

/// Decodes a chunked body. Each chunk follows its length in hexadecimal digits.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
        let Some(piece) = rest.get(..length).filter(|piece| !piece.is_empty()) else { break };
        whole.push_str(piece);
        body = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn gpu() -> GpuInfo {
        GpuInfo {
            index: 1,
            name: "NVIDIA H200".into(),
            uuid: "GPU-1".into(),
            memory_total_bytes: None,
            mig: false,
            pci_bus_id: "00000000:3B:00.0".into(),
        }
    }

    const TWO: &str = r#"{"gpus":[{"id":0,"name":"NVIDIA H200","pci_address":"0000:3b:00.0"},{"id":1,"name":"NVIDIA H200","pci_address":"0000:4c:00.0"}],"cpus":[],"enabled_api_groups":["gpu-control"],"auth_required":false}"#;

    /// Serves requests during `call`: `/discover` with this text, others with this status. Returns the requests and the
    /// result of `call`.
    fn served(
        discover: &'static str,
        status: &'static str,
        call: impl Fn(&Zeusd) -> Result<(), Unanswered>,
    ) -> (Vec<String>, Result<(), Unanswered>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("zeusd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let mut asked = Vec::new();
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let lines: Vec<String> =
                    BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let answer = if lines[0].contains("/discover") {
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{discover}", discover.len())
                } else {
                    format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n4\r\nwhy \r\n3\r\nnot\r\n0\r\n\r\n")
                };
                stream.write_all(answer.as_bytes()).unwrap();
                asked.push(lines[0].clone());
                asked.extend(lines.into_iter().filter(|line| line.starts_with("Authorization")));
            }
            asked
        });
        let result = call(&Zeusd { socket, token: Some("secret".into()) });
        drop(stop);
        (server.join().unwrap(), result)
    }

    #[test]
    fn changes_go_to_the_gpu_with_the_same_pci_address() {
        let (asked, done) = served(TWO, "200 OK", |zeusd| zeusd.change(&gpu(), 2, Change::PowerLimit(300_000)));
        assert_eq!(done, Ok(()));
        let token = "Authorization: Bearer secret";
        let call = "POST /gpu/set_power_limit?gpu_ids=0&block=true&power_limit_mw=300000 HTTP/1.1";
        assert_eq!(asked, ["GET /discover HTTP/1.1", token, call, token]);
        let of = |change| served(TWO, "200 OK", move |zeusd| zeusd.change(&gpu(), 2, change)).0[2].clone();
        assert!(
            of(Change::LockSmClock(1500))
                .contains("/gpu/set_gpu_locked_clocks?gpu_ids=0&block=true&min_clock_mhz=1500&max_clock_mhz=1500 ")
        );
        assert!(of(Change::FreeSmClock).contains("/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true "));
        assert!(of(Change::LockMemoryClock(3201)).contains("/gpu/set_mem_locked_clocks?"));
        assert!(of(Change::FreeMemoryClock).contains("/gpu/reset_mem_locked_clocks?"));
    }

    #[test]
    fn a_gpu_without_certain_identity_is_not_changed() {
        let old = r#"{"gpus":[{"id":0,"name":"NVIDIA H200"},{"id":1,"name":"NVIDIA H200"}],"enabled_api_groups":["gpu-control"]}"#;
        let (asked, done) = served(old, "200 OK", |zeusd| zeusd.change(&gpu(), 2, Change::FreeSmClock));
        assert!(done.is_ok() && asked[2].contains("gpu_ids=1"), "{asked:?}");
        let other = r#"{"gpus":[{"id":1,"name":"NVIDIA A40"}],"enabled_api_groups":["gpu-control"]}"#;
        let elsewhere = r#"{"gpus":[{"id":1,"name":"NVIDIA H200","pci_address":"0000:01:00.0"}],"enabled_api_groups":["gpu-control"]}"#;
        let off = r#"{"gpus":[{"id":1,"name":"NVIDIA H200"}],"enabled_api_groups":["gpu-read"]}"#;
        let fewer = r#"{"gpus":[{"id":1,"name":"NVIDIA H200"}],"enabled_api_groups":["gpu-control"]}"#;
        for (told, why) in [
            (fewer, "no GPU that is certain"),
            (other, "no GPU that is certain"),
            (elsewhere, "no GPU that is certain"),
            (off, "gpu-control is off"),
        ] {
            let (asked, done) = served(told, "200 OK", |zeusd| zeusd.change(&gpu(), 2, Change::FreeSmClock));
            let unanswered = done.unwrap_err();
            assert!(unanswered.why.contains(why) && unanswered.for_certain, "{told}");
            assert_eq!(asked.len(), 2, "nothing was changed: {asked:?}");
        }
    }

    #[test]
    fn refusals_have_a_reason() {
        let (_, done) = served(TWO, "403 Forbidden", |zeusd| zeusd.change(&gpu(), 2, Change::FreeSmClock));
        let forbidden = done.unwrap_err();
        assert_eq!(
            forbidden.why,
            "it may not do that itself, or its token does not allow it, with status 403: why not"
        );
        assert!(forbidden.for_certain);
        let (_, done) = served(TWO, "500 Oops", |zeusd| zeusd.change(&gpu(), 2, Change::FreeSmClock));
        assert!(!done.unwrap_err().for_certain, "it may have done it before it failed");
        let gone = Zeusd { socket: "/nonexistent/zeusd.sock".into(), token: None };
        assert!(gone.change(&gpu(), 2, Change::FreeSmClock).unwrap_err().why.starts_with("it does not answer: "));
    }
}
