//! Two front doors that speak nothing of xDFS, and one [`Access`](xdfs_access::Access) behind both:
//! one takes `USER` and `PASS` line by line, the other a bearer token in the header of a request.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod bearer;
mod house;
mod line;
mod moving;
mod shared;
