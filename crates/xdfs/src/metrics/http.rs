//! One request of HTTP/1.1 and its answer, without input or output. The connection ends with the
//! answer, so nothing follows a request: its body, if it has one, is never read.

use super::CONTENT_TYPE;

/// Most bytes of the head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;
/// Most fields of a head.
const FIELDS_MAX: usize = 64;
const PATH: &str = "/metrics";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The answer to the bytes of a request that have come so far; `None` if its head isn't complete.
/// `metrics` makes the text that is asked for.
pub(super) fn answer(input: &[u8], metrics: impl FnOnce() -> String) -> Option<Vec<u8>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(input) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            return Some(refusal(status, "", "the head of the request is too long\n"));
        }
        Err(error) => {
            let text = format!("this is no request of HTTP/1.1: {error}\n");
            return Some(refusal("400 Bad Request", "", &text));
        }
    }
    let target = request.path.unwrap_or_default();
    // A proxy may be asked for the whole URL.
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some(match (path, request.method) {
        (PATH, Some("GET")) => whole("200 OK", CONTENT_TYPE, "", &metrics(), true),
        (PATH, Some("HEAD")) => whole("200 OK", CONTENT_TYPE, "", &metrics(), false),
        (PATH, _) => {
            let allow = "Allow: GET, HEAD\r\n";
            refusal(
                "405 Method Not Allowed",
                allow,
                "metrics can only be read\n",
            )
        }
        (_, method) => {
            let text = format!("there is only {PATH} here\n");
            whole("404 Not Found", PLAIN, "", &text, method != Some("HEAD"))
        }
    })
}

fn refusal(status: &str, fields: &str, text: &str) -> Vec<u8> {
    whole(status, PLAIN, fields, text, true)
}

fn whole(status: &str, kind: &str, fields: &str, text: &str, has_body: bool) -> Vec<u8> {
    let body = if has_body { text } else { "" };
    let length = text.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{fields}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n\
         {body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(input: &str) -> Option<String> {
        let answer = answer(input.as_bytes(), || "a 1\n".to_owned())?;
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nConnection: close"), "{head}");
        let length: usize = head
            .split_once("Content-Length: ")
            .and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok())
            .unwrap();
        match input.starts_with("HEAD") {
            true => assert!(body.is_empty() && length > 0, "{text}"),
            false => assert_eq!(body.len(), length),
        }
        Some(head.split_whitespace().nth(1).unwrap().to_owned())
    }

    #[test]
    fn only_metrics_can_be_read() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "200"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET /metrics?a=b HTTP/1.1\r\n\r\n", "200"),
            ("GET http://a:1/metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET http://a HTTP/1.1\r\n\r\n", "404"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/.. HTTP/1.1\r\n\r\n", "404"),
            ("HEAD / HTTP/1.1\r\n\r\n", "404"),
            (
                "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
                "405",
            ),
            ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            ("\0\u{1}\u{2}", "400"),
            ("GET /metrics HTTP/9.9\r\n\r\n", "400"),
        ] {
            assert_eq!(status(request).as_deref(), Some(expected), "{request}");
        }
    }

    #[test]
    fn a_head_is_waited_for_up_to_a_bound() {
        let head = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(status(&head[..end]), None, "{end}");
        }
        let field = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(status(&field[..HEAD_BYTES_MAX - 1]), None);
        assert_eq!(status(&field[..HEAD_BYTES_MAX]).as_deref(), Some("431"));
        let many = format!(
            "GET /metrics HTTP/1.1\r\n{}",
            "X: y\r\n".repeat(FIELDS_MAX + 1)
        );
        assert_eq!(status(&many).as_deref(), Some("431"));
    }
}
