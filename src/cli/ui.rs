//! `ledger ui`

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::{print, say};
use crate::report::{document, table_of};
use crate::ui::{Key, Options, Place, serve};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Show the ledger in a browser: runs, living attempts, answers, curves, a timeline with energy
///
/// The page is served on 127.0.0.1, on a free port, and only reads. Its address holds a token, which the browser
/// exchanges for a cookie. It ends with Ctrl-C, or after an hour without an open page. On another machine:
/// `ssh -L 8080:127.0.0.1:8080 HOST ledger ui --port 8080`.
///
/// Example: ledger ui --open
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The port [default: a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Listen on a Unix socket, which no other user can reach: `ssh -L 8080:PATH HOST` forwards it
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "open"])]
    socket: Option<PathBuf>,

    /// Open it in the browser
    #[arg(long)]
    open: bool,

    /// Stop after this many minutes without an open page
    #[arg(long, value_name = "MINUTES", default_value_t = 60.0, value_parser = minutes)]
    idle: f64,
}

fn minutes(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number <= 1e6 { Ok(number) } else { Err("not a number above 0".to_owned()) }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::new(exit::USAGE, format!("the page cannot be served: {error}"));
    let key = Key::new().map_err(failed)?;
    let place = args.socket.clone().map_or(Place::Port(args.port.unwrap_or(0)), Place::Socket);
    let ledger = context.store().dir().to_owned();
    let options = Options {
        place,
        ledger: ledger.clone(),
        program: PathBuf::from("/proc/self/exe"),
        key: key.clone(),
        idle: Duration::from_secs_f64(args.idle * 60.0),
    };
    let mut told = Ok(());
    let ready = |port: u16| told = tell(args, context, &ledger, port, key.token());
    let served = serve(options, ready);
    told?;
    served.map_err(|error| match (&args.socket, error.kind()) {
        (Some(path), _) => Failure::new(exit::USAGE, format!("cannot listen on `{}`: {error}", path.display())),
        (None, std::io::ErrorKind::AddrInUse) => Failure::new(
            exit::USAGE,
            format!("port {} is in use (without --port, a free one is found)", args.port.unwrap_or(0)),
        ),
        _ => failed(error),
    })?;
    Ok(exit::YES)
}

fn tell(args: &Args, context: &Context, ledger: &Path, port: u16, token: &str) -> Result<(), Failure> {
    let (how, address) = match &args.socket {
        Some(path) => {
            let how = format!("is shown on the socket `{}`; forward port 8080 to it, and open", path.display());
            (how, format!("http://localhost:8080/?token={token}"))
        }
        None => ("is shown at".to_owned(), format!("http://127.0.0.1:{port}/?token={token}")),
    };
    if context.json {
        let members = [("address", address.as_str().into()), ("ledger", ledger.display().to_string().into())];
        print(&document(table_of(members)))?;
    } else {
        print(&format!("{} {how}\n  {address}\nCtrl-C ends it\n", ledger.display()))?;
    }
    if args.open
        && let Err(error) = open(&address)
    {
        say(&format!("note: no browser could be started: {error} (open the address by hand)"));
    }
    Ok(())
}

/// The time after which a browser has read the file.
const READ: Duration = Duration::from_secs(30);

/// Opens an address in the browser through a file that redirects to it. Other users can see the arguments of a process,
/// and the address grants access.
fn open(address: &str) -> std::io::Result<()> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("ledger-ui-{}.html", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
    let page = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={address}\">\n");
    let mut browser = Command::new("xdg-open");
    browser.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = file.write_all(page.as_bytes()).and_then(|()| browser.spawn());
    let mut child = started.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
    std::thread::spawn(move || {
        std::thread::sleep(READ);
        // The results do not matter.
        let _ = (std::fs::remove_file(&path), child.wait());
    });
    Ok(())
}
