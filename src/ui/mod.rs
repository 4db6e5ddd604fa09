//! A local web page for the ledger: an HTTP server on the loopback interface or a Unix socket.
//!
//! It computes nothing itself. Each request runs a read-only command of this program with `--json`.
//! So the page and the terminal cannot disagree, and the ledger is open only during a request.
//! Must not write, and must not serve files from disk.

mod api;
mod door;
mod kept;
mod live;
mod page;
mod server;

pub use door::Key;
pub use server::{Options, Place, serve};
