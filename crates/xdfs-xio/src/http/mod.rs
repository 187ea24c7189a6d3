//! HTTP/1.1 (RFC 9112) as a transform: the body of one response is what is read, or the body of one
//! request is what is written.
//!
//! With `method=get` the stack is open when the response's head has arrived with a status that
//! carries the content (200, or 206 for a range); any other status fails the opening. With
//! `method=put` the request's body is written, `close` ends it, and reading then returns the end if
//! the server has stored it, and an error otherwise.
//!
//! Guarantees: a body that ends before its length, or before its last chunk, is an error. A server
//! can't make the head, a chunk's line or the trailer longer than 64 KiB, nor use
//! lengths that contradict each other. Limits: only the client's end; no redirection, no reuse of
//! the connection, no transfer coding but chunks, no `100 Continue` is asked for. A body without a
//! length ends with the connection, and then a cut can't be told from the end, unless TLS is below.

mod body;
mod driver;
mod head;
mod options;
mod transform;

pub use driver::driver;
pub use transform::Http;
