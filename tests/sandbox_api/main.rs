//! The sandbox on the real kernel, through the library's API. Our own binary is the inner stage.

#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![expect(clippy::disallowed_methods, reason = "a test reads its environment and the clock")]

mod attacks;
mod confine;
mod end;
mod fixture;
mod namespaces;
mod proxy;
mod start;
mod supervise;
