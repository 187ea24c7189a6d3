//! A door for requests: a head of lines, in it `Authorization: Bearer TOKEN`, an empty line, and a
//! body. Each request is a session of its own.

use xdfs_access::{Access, Admission, Evidence, Peer};
use xdfs_proto::{Code, Fault};

use crate::house::House;
use crate::moving;

/// What this door has for the request: its path and its admission.
pub(crate) fn log_in<'a>(
    access: &Access,
    peer: &str,
    head: &'a str,
) -> Result<(&'a str, Admission), Fault> {
    let peer = Peer::new("bearer", peer);
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1));
    let token = lines.find_map(|line| line.strip_prefix("Authorization: Bearer "));
    let (Some(path), Some(token)) = (path, token) else {
        let fault = Fault::new(Code::AuthenticationFailed, "log in", "a token is missing");
        return Err(access.refuse(&peer, "", fault));
    };
    let principal = access.authenticate(&peer, "", Evidence::Token(token.as_bytes()))?;
    let admission = access.admit(&peer, &principal)?;
    Ok((path.trim_start_matches('/'), admission))
}

/// Answers a request.
fn serve(access: &Access, peer: &str, request: &[u8]) -> Result<Vec<u8>, Fault> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = request.split_at(end.unwrap() + 4);
    let head = str::from_utf8(head).unwrap();
    let (path, admission) = log_in(access, peer, head)?;
    if head.starts_with("PUT ") {
        moving::write(&*admission.store, path, body)?;
        return Ok(Vec::new());
    }
    moving::read(&*admission.store, path)
}

/// The head of a request.
pub(crate) fn head(order: &str, token: &str) -> String {
    format!("{order} HTTP/1.1\r\nHost: data\r\nAuthorization: Bearer {token}\r\n\r\n")
}

const PEER: &str = "[2001:db8::7]:4000";

fn ask(house: &House, order: &str, token: &str, body: &[u8]) -> Result<Vec<u8>, Code> {
    let request = [head(order, token).as_bytes(), body].concat();
    serve(&house.access, PEER, &request).map_err(|fault| fault.code)
}

#[test]
fn a_token_is_good_as_far_as_its_scopes_go() {
    let house = House::new(Default::default());
    let all = house.token("storage.read:/box storage.create:/box/in");
    let read = house.token("storage.read:/box");
    std::fs::create_dir_all(house.path("box/in")).unwrap();
    ask(&house, "PUT /box/in/one", &all, b"bytes").unwrap();
    assert_eq!(
        ask(&house, "GET /box/in/one", &read, b"").unwrap(),
        b"bytes"
    );
    let denied = Err(Code::PermissionDenied);
    assert_eq!(ask(&house, "PUT /box/in/two", &read, b"bytes"), denied);
    assert_eq!(ask(&house, "PUT /box/two", &all, b"bytes"), denied);
    // Her rights reach as far as this, and the token doesn't.
    assert_eq!(ask(&house, "GET /shelf/book", &all, b""), denied);
    let much = vec![0; 100_001];
    let full = Err(Code::QuotaExceeded);
    assert_eq!(ask(&house, "PUT /box/in/much", &all, &much), full);
    let lines = house.audit(["door", "event", "method", "user", "path", "bytes", "result"]);
    for expected in [
        ["bearer", "authenticate", "token", "alice", "", "", "ok"],
        [
            "bearer",
            "upload",
            "token",
            "alice",
            "box/in/one",
            "5",
            "ok",
        ],
        [
            "bearer",
            "download",
            "token",
            "alice",
            "box/in/one",
            "5",
            "ok",
        ],
    ] {
        let expected = expected.map(str::to_owned);
        assert!(lines.contains(&expected), "{expected:?} in {lines:#?}");
    }
}

#[test]
fn a_request_without_a_good_token_fails() {
    let house = House::new(Default::default());
    let failed = Err(Code::AuthenticationFailed);
    let good = house.token("storage.read:/box");
    let other = House::new(Default::default()).token("storage.read:/box");
    assert_eq!(ask(&house, "GET /box/one", &other, b""), failed);
    assert_eq!(
        ask(&house, "GET /box/one", &format!("x{good}"), b""),
        failed
    );
    let request = b"GET /box/one HTTP/1.1\r\n\r\n";
    let fault = serve(&house.access, PEER, request).unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
    // Nothing that can't be guessed has to wait.
    std::fs::create_dir_all(house.path("box")).unwrap();
    std::fs::write(house.path("box/one"), "one").unwrap();
    assert_eq!(ask(&house, "GET /box/one", &good, b""), Ok(b"one".to_vec()));
}
