//! main.rs: reads a request a line from stdin, writes a reply a line to stdout.
//!
//! Its law: INTERPRETING.md. A panic of the crate is caught and told as `error`, its place on stderr; neither is a refusal.
//! What can't be caught (an abort, a stack that is full, a signal) ends the process, and is left to. Nothing is kept between
//! requests: each opens its file anew.
mod answer;
mod encode;
mod probe;
mod protocol;

use protocol::{Fault, Request};
use std::any::Any;
use std::io::{self, BufRead, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};

fn main() -> io::Result<()> {
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut line = Vec::new();
    while stdin.read_until(b'\n', &mut line)? > 0 {
        let request = Request::parse(&line);
        let outcome = match &request {
            Some(request) => caught(|| answer::answer(request)),
            None => Err(Fault::Error("malformed request".into())),
        };
        let reply = protocol::reply(request.as_ref().map(|request| request.id), outcome);
        writeln!(stdout, "{reply}")?;
        stdout.flush()?;
        if request.is_some_and(|request| request.op == answer::LAST) {
            break;
        }
        line.clear();
    }
    Ok(())
}

/// What the function returns, or its panic as an error.
pub fn caught<T>(ask: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|panic| Err(Fault::Error(format!("panic: {}", said(&*panic)))))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of no text")
}
