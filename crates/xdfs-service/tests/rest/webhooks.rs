//! Webhooks, with receivers of several kinds.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::Value;
use xdfs::Code;
use xdfs::security::Network;
use xdfs_service::{JobDetail, StateName, Submission, WebhookOptions, WebhookSecret, WebhookState};

use super::{PATIENCE, Scene};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request: its line, its headers in lower case, and its body.
type Request = (String, Vec<(String, String)>, String);

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = value(&headers, "content-length").parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (line, headers, String::from_utf8(body).unwrap())
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    let found = headers.iter().find(|(own, _)| own == name);
    found.map_or("", |(_, value)| value)
}

/// A receiver that gives these answers, one after the other.
fn receiver(answers: &'static [&'static str]) -> (SocketAddr, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let request = read(&stream);
            let _ = stream.write_all(answer.as_bytes());
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

fn scene() -> Scene {
    let options = WebhookOptions {
        allow: vec![Network::parse("127.0.0.0/8").unwrap()],
        secret: Some(WebhookSecret::parse(SECRET).unwrap()),
    };
    Scene::with(1, options)
}

fn submit(scene: &Scene, key: &str, url: String) -> JobDetail {
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let mut submission = Submission::new("told", vec![scene.upload(&file, key, None)]);
    submission.webhook = Some(url);
    let id = scene.client().submit(&submission, key).unwrap().job.id;
    scene.until_ended(id)
}

#[test]
fn the_end_of_a_job_is_sent_once_and_signed() {
    const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";
    let scene = scene();
    let (address, requests) = receiver(&[OK, OK]);
    let done = submit(&scene, "one", format!("http://{address}/hook?a=b"));
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    let (line, headers, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(line.trim(), "POST /hook?a=b HTTP/1.1");
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(event["type"], "job.succeeded");
    assert_eq!(event["data"]["id"], done.job.id.to_string());
    assert_eq!(event["data"]["label"], "told");
    // As a receiver checks it.
    let (id, timestamp) = (
        value(&headers, "webhook-id"),
        value(&headers, "webhook-timestamp"),
    );
    assert!(id.starts_with(&done.job.id.to_string()), "{id}");
    let signed = format!("{id}.{timestamp}.{body}");
    assert_eq!(value(&headers, "webhook-signature"), signature(&signed));
    let told = scene.until(done.job.id, |detail| {
        detail.webhook.as_ref().unwrap().state == WebhookState::Delivered
    });
    let webhook = told.webhook.unwrap();
    assert_eq!((webhook.attempts, webhook.failure), (1, None));
    assert!(webhook.delivered_at.is_some());

    // A job without a webhook sends none, and a failed one says so.
    let mut failing = Submission::new("", vec![scene.upload(&scene.path("none"), "x", None)]);
    failing.webhook = Some(format!("http://{address}/failed"));
    let id = scene.client().submit(&failing, "x").unwrap().job.id;
    scene.until_ended(id);
    let (line, _, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert!(line.starts_with("POST /failed "), "{line}");
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(event["type"], "job.failed");
    assert_eq!(event["data"]["failure"]["code"], "not-found");
}

/// The HMAC-SHA256 of the secret, by its definition.
fn signature(signed: &str) -> String {
    use base64ct::{Base64, Encoding as _};
    use sha2::{Digest as _, Sha256};
    let secret = Base64::decode_vec(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let pad = |byte: u8| {
        let mut key = [byte; 64];
        key.iter_mut()
            .zip(&secret)
            .for_each(|(byte, key)| *byte ^= key);
        key
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(signed);
    let outer = Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner.finalize());
    format!("v1,{}", Base64::encode_string(&outer.finalize()))
}

#[test]
fn a_receiver_that_fails_is_tried_again_and_a_redirect_isn_t_followed() {
    let scene = scene();
    let (busy, requests) =
        receiver(&["HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"]);
    let done = submit(&scene, "busy", format!("http://{busy}/"));
    requests.recv_timeout(PATIENCE).unwrap();
    let again = scene.until(done.job.id, |detail| {
        detail.webhook.as_ref().unwrap().attempts == 1
    });
    let webhook = again.webhook.unwrap();
    assert_eq!(webhook.state, WebhookState::Due);
    assert!(webhook.next_attempt_at > again.job.ended_at);
    assert!(webhook.failure.unwrap().cause.contains("503"));

    let (elsewhere, none) = receiver(&["HTTP/1.1 200 OK\r\n\r\n"]);
    for (key, answer) in [
        ("gone", "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"),
        (
            "moved",
            "HTTP/1.1 307 Moved\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        let (address, requests) = receiver(Box::leak(Box::new([answer])));
        let done = submit(&scene, key, format!("http://{address}/"));
        requests.recv_timeout(PATIENCE).unwrap();
        let ended = scene.until(done.job.id, |detail| {
            detail.webhook.as_ref().unwrap().state == WebhookState::Failed
        });
        assert_eq!(ended.webhook.unwrap().attempts, 1);
        assert!(requests.try_recv().is_err());
    }
    assert!(none.try_recv().is_err(), "{elsewhere}");
}

#[test]
fn a_receiver_that_never_answers_holds_nothing() {
    let scene = scene();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let waiting = submit(&scene, "0", format!("http://{address}/"));
    // It is connected to, and then there is silence.
    let (stream, _) = silent.accept().unwrap();
    for key in 1..5 {
        let done = submit(&scene, &key.to_string(), format!("http://{address}/"));
        assert_eq!(done.job.state, StateName::Succeeded);
    }
    let webhook = scene.client().job(waiting.job.id).unwrap().webhook.unwrap();
    assert_eq!((webhook.state, webhook.attempts), (WebhookState::Due, 0));
    let timed_out = scene.until(waiting.job.id, |detail| {
        detail.webhook.as_ref().unwrap().attempts == 1
    });
    let failure = timed_out.webhook.unwrap().failure.unwrap();
    assert_eq!(failure.code, "deadline-exceeded", "{failure:?}");
    drop(stream);
}

#[test]
fn addresses_that_aren_t_public_are_refused() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let ask = |key: &str, url: String| {
        let mut submission = Submission::new("", vec![scene.upload(&file, key, None)]);
        submission.webhook = Some(url);
        scene.client().submit(&submission, key)
    };
    // By their address at once.
    for host in [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "[::1]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
    ] {
        let refused = ask("refused", format!("http://{host}:{port}/")).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument, "{host}");
        assert_eq!(refused.path, b"webhook", "{host}");
    }
    // By a name, or what a resolver takes for an address, when they are connected to.
    for (key, host) in [("1", "localhost"), ("2", "2130706433"), ("3", "0x7f.1")] {
        let id = ask(key, format!("http://{host}:{port}/")).unwrap().job.id;
        scene.until_ended(id);
        let ended = scene.until(id, |detail| detail.webhook.as_ref().unwrap().attempts == 1);
        let webhook = ended.webhook.unwrap();
        let failure = webhook.failure.unwrap();
        // Some systems know no such name.
        if failure.code == "permission-denied" {
            assert_eq!(webhook.state, WebhookState::Failed);
            assert!(
                failure.cause.contains("is no public address"),
                "{failure:?}"
            );
        } else {
            assert_ne!(host, "localhost", "{failure:?}");
        }
    }
    assert!(listener.accept().is_err(), "it was connected to");
}
