//! A real client and a real server with a faulty network between them: what is lost is sent again,
//! what is durable isn't, and what can't go on says so and goes on later.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod beneath;
mod channels;
mod corruption;
mod elastic;
#[cfg(unix)]
mod kept;
mod line;
mod panics;
#[cfg(unix)]
mod recognised;
mod resume;
mod scene;
mod session;
mod silence;
mod stream;
mod transports;
mod trees;
