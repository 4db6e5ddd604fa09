//! The HTTP/1 server: one thread, GET and HEAD only.

use super::api::{Answer, Api};
use super::door::{Key, is_addressed_here};
use super::live::Live;
use super::page;
use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};

/// Where the server listens.
#[derive(Clone, Debug)]
pub enum Place {
    /// On this port of 127.0.0.1; 0 selects a free port.
    Port(u16),
    /// On a Unix socket that only its owner can use.
    Socket(PathBuf),
}

/// Options of the server.
#[derive(Debug)]
pub struct Options {
    /// Where the server listens.
    pub place: Place,
    /// The ledger's folder.
    pub ledger: PathBuf,
    /// The program that runs the commands: this one.
    pub program: PathBuf,
    /// The secrets that give access.
    pub key: Key,
    /// The server ends after this time without a request and without an open page.
    pub idle: Duration,
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// The state shared by all requests.
struct Shared {
    key: Key,
    api: Arc<Api>,
    live: Arc<Live>,
    last: Mutex<Instant>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Serves until it has been idle for the given time.
/// `ready` is called with the port, or 0 for a socket, once connections are accepted.
///
/// # Errors
/// If the address is in use, or the system refuses it.
pub fn serve(options: Options, ready: impl FnOnce(u16)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Options { place, ledger, program, key, idle } = options;
    runtime.block_on(async {
        let (listener, port) = Listener::open(&place).await?;
        ready(port);
        let api = Arc::new(Api::new(program, ledger));
        let live = Arc::new(Live::new());
        tokio::spawn(Arc::clone(&live).look(Arc::clone(&api)));
        let shared = Arc::new(Shared { key, api, live, last: Mutex::new(Instant::now()) });
        let served = listener.accept_all(&shared, idle).await;
        if let Place::Socket(path) = &place {
            // The socket may have been removed already.
            let _ = std::fs::remove_file(path);
        }
        served
    })
}

impl Listener {
    async fn open(place: &Place) -> io::Result<(Self, u16)> {
        match place {
            Place::Port(port) => {
                let listener = TcpListener::bind(("127.0.0.1", *port)).await?;
                let port = listener.local_addr()?.port();
                Ok((Self::Tcp(listener), port))
            }
            Place::Socket(path) => Ok((Self::Unix(bind(path)?), 0)),
        }
    }

    async fn accept_all(&self, shared: &Arc<Shared>, idle: Duration) -> io::Result<()> {
        loop {
            let look_again = idle.min(Duration::from_secs(1));
            let accepted = match self {
                Self::Tcp(listener) => tokio::time::timeout(look_again, listener.accept())
                    .await
                    .map(|accepted| accepted.map(|(stream, _)| tokio::spawn(connection(stream, Arc::clone(shared))))),
                Self::Unix(listener) => tokio::time::timeout(look_again, listener.accept())
                    .await
                    .map(|accepted| accepted.map(|(stream, _)| tokio::spawn(connection(stream, Arc::clone(shared))))),
            };
            match accepted {
                Ok(Ok(_)) => {}
                // There are too many open files, or a client disconnected: the server continues.
                Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(_) if shared.live.has_listeners() => shared.touch(),
                Err(_) if shared.idle_for() >= idle => return Ok(()),
                Err(_) => {}
            }
        }
    }
}

/// Binds a Unix socket. It replaces a socket that no process listens on, but no other file.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let bound = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // A connection to a file that is not a socket is refused too.
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            match std::os::unix::net::UnixStream::connect(path) {
                Err(refused) if is_socket && refused.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                }
                _ => return Err(error),
            }
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(bound)
}

async fn connection<S>(stream: S, shared: Arc<Shared>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    // A client may disconnect at any time.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle_for(&self) -> Duration {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        self.touch();
        let mut response = self.answer(&request).await;
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let (headers, path) = (request.headers(), request.uri().path());
        let query = request.uri().query().unwrap_or_default();
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "This server only answers GET.\n");
        }
        if !is_addressed_here(headers) {
            return text(StatusCode::FORBIDDEN, "This request is not for this server, or comes from another page.\n");
        }
        if path == "/favicon.ico" {
            return text(StatusCode::NO_CONTENT, "");
        }
        if path == "/" && self.key.opens(query) {
            return self.let_in();
        }
        if !self.key.is_in(headers) {
            return text(
                StatusCode::UNAUTHORIZED,
                "This page's session has ended. Start `ledger ui` again and open its address.\n",
            );
        }
        let zips = headers.get(header::ACCEPT_ENCODING).and_then(|accepted| accepted.to_str().ok());
        let zips = zips.is_some_and(|accepted| accepted.contains("gzip"));
        if let Some(file) = page::file(path) {
            return whole(StatusCode::OK, file.kind, file.content.as_bytes().to_vec(), zips);
        }
        match path.strip_prefix("/api/") {
            Some("live") => self.stream(),
            Some(command) => told(self.api.answer(command, query).await, zips),
            None => text(StatusCode::NOT_FOUND, "There is no such page.\n"),
        }
    }

    /// Sets the cookie and has the browser reload the page.
    /// After a redirect from another site, the browser would not send a cookie with `SameSite=Strict`.
    fn let_in(&self) -> Response<Body> {
        let link = "<!doctype html><title>ledger</title><p><a href=\"/\">Open the page</a></p>\n";
        let mut response = whole(StatusCode::OK, "text/html; charset=utf-8", link.as_bytes().to_vec(), false);
        let headers = response.headers_mut();
        headers.insert(header::REFRESH, HeaderValue::from_static("0; url=/"));
        if let Ok(cookie) = HeaderValue::from_str(&self.key.set_cookie()) {
            headers.insert(header::SET_COOKIE, cookie);
        }
        response
    }

    fn stream(&self) -> Response<Body> {
        let (sender, channel) = Channel::new(4);
        let live = Arc::clone(&self.live);
        tokio::spawn(async move { live.tell(sender).await });
        let mut response = Response::new(Either::Right(channel));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }
}

/// Headers of all responses. They forbid foreign content, caching, framing and referrers.
const HEADERS: [(header::HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Least size in bytes of a compressed response.
const LEAST_ZIPPED: usize = 1024;

fn whole(status: StatusCode, kind: &'static str, mut content: Vec<u8>, zips: bool) -> Response<Body> {
    let is_zipped = zips && content.len() >= LEAST_ZIPPED;
    if is_zipped {
        content = page::zipped(&content);
    }
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(content))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if is_zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", text.as_bytes().to_vec(), false)
}

fn told(answer: Answer, zips: bool) -> Response<Body> {
    let mut response = whole(answer.status, "application/json", answer.body, zips);
    // Headers are ASCII, so other characters are percent-encoded.
    for (name, said) in [("x-ledger-command", answer.command), ("x-ledger-notes", answer.notes)] {
        let escaped: String = said.bytes().map(escaped).collect();
        if let Ok(value) = HeaderValue::from_str(&escaped)
            && !said.is_empty()
        {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn escaped(byte: u8) -> String {
    if byte.is_ascii_graphic() && byte != b'%' { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}
