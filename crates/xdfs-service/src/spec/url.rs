//! URLs of webhooks.

use ureq::http::Uri;
use xdfs::Fault;

use super::invalid;

const URL_BYTES_MAX: usize = 2048;

/// The host of a URL that a webhook may have.
///
/// # Errors
/// It is no URL of HTTP, or has credentials.
pub(crate) fn check_url(url: &str) -> Result<Uri, Fault> {
    let read = || {
        let is_plain = url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let uri: Uri = url
            .parse()
            .ok()
            .filter(|_| is_plain && url.len() <= URL_BYTES_MAX)?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority()?.as_str();
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        (is_http && has_host && !authority.contains('@')).then_some(uri)
    };
    read().ok_or_else(|| {
        let cause = format!(
            "it is no URL of http or https, of at most {URL_BYTES_MAX} bytes and without a password"
        );
        invalid("webhook", &cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_of_http_and_have_no_credentials() {
        for url in [
            "http://example.org",
            "https://example.org:8443/hook?token=1&more",
            "https://[2606:2800:220:1::1]/hook",
        ] {
            assert!(check_url(url).is_ok(), "{url}");
        }
        for url in [
            "",
            "example.org",
            "/hook",
            "ftp://example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http://",
            "http:///hook",
            "http://user:password@example.org/",
            "http://example.org@127.0.0.1/",
            "http://example.org/#part",
            "http://example.org/a b",
            "http://example.org/\r\nHost: other",
            "http://example.org/\u{e4}",
            &format!("http://example.org/{}", "x".repeat(1 << 20)),
        ] {
            let refused = check_url(url).map_err(|fault| fault.path);
            assert_eq!(refused.err().as_deref(), Some(&b"webhook"[..]), "{url:.60}");
        }
    }
}
