//! The lines of a trace, and what happens where none can be written.

use std::fs;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::registry::Registry;
use crate::spec::{DriverSpec, StackSpec};
use crate::stack::Stack;

fn stack(file: &Path, sample: &str) -> Stack {
    let trace = DriverSpec::new("trace")
        .and_then(|d| d.set("file", file.to_str().unwrap()))
        .and_then(|d| d.set("sample", sample))
        .unwrap();
    let spec = StackSpec::new(DriverSpec::new("memory").unwrap()).with(trace);
    Registry::standard().build(&spec).unwrap()
}

/// Writes 5 bytes, reads 3, and closes.
fn talk(stack: &Stack, name: &str) {
    let endpoint = Endpoint::memory(name);
    let registry = Registry::standard();
    let plain = registry.build(&"memory".parse().unwrap()).unwrap();
    let mut listener = plain.listen(&endpoint).unwrap();
    let mut near = stack.open(&endpoint).unwrap();
    assert!(near.finish_open().unwrap());
    let mut far = listener.accept().unwrap();
    near.write_vectored(&[IoSlice::new(b"hello")]).unwrap();
    let mut seen = [0; 10];
    let read = near.read_vectored(&mut [IoSliceMut::new(&mut seen)]);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
    thread::sleep(Duration::from_millis(20));
    far.write_vectored(&[IoSlice::new(b"abc")]).unwrap();
    let read = near.read_vectored(&mut [IoSliceMut::new(&mut seen)]);
    assert_eq!(read.unwrap(), 3);
    near.close().unwrap();
    assert_eq!(near.control("trace.calls").unwrap().to_string(), "5");
}

/// The lines of the file, once the last is a summary.
fn lines(file: &Path, summaries: usize) -> Vec<String> {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(file).unwrap();
        if text.matches("summary").count() == summaries && text.ends_with('\n') {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{text}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The value of a field of a line.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap();
    rest.split([',', '}']).next().unwrap()
}

#[test]
fn every_call_is_a_line_and_the_time_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a trace, of: calls");
    talk(&stack(&file, "1"), "trace-all");
    let lines = lines(&file, 1);
    let calls: Vec<&str> = lines.iter().map(|line| field(line, "call")).collect();
    let wanted = ["open", "write", "read", "read", "close", "summary"];
    assert_eq!(calls, wanted.map(|call| format!("\"{call}\"")));
    let bytes: Vec<&str> = lines[..5].iter().map(|line| field(line, "bytes")).collect();
    assert_eq!(bytes, ["0", "5", "0", "3", "0"]);
    assert!(lines[2].contains("\"error\":\""), "{}", lines[2]);
    let number = |name| field(&lines[5], name).parse::<f64>().unwrap();
    assert_eq!((number("read"), number("written")), (3.0, 5.0));
    assert!(number("waiting_to_read") >= 0.02, "{}", lines[5]);
    let parts = ["reading", "writing", "waiting_to_read", "waiting_to_write"];
    let parts: f64 = parts.map(number).iter().sum();
    let all = parts + number("waiting_for_both") + number("elsewhere");
    assert!(all <= number("seconds") + 1e-5, "{}", lines[5]);
    assert!(all >= 0.02, "{}", lines[5]);
}

#[test]
fn a_sample_leaves_calls_out_and_no_summary() {
    let folder = tempfile::tempdir().unwrap();
    for (sample, wanted) in [("0", 2), ("2", 2 * 3), ("5", 2 * 2), ("6", 2)] {
        let file = folder.path().join(sample);
        let stack = stack(&file, sample);
        talk(&stack, &format!("trace-{sample}-a"));
        talk(&stack, &format!("trace-{sample}-b"));
        assert_eq!(lines(&file, 2).len(), wanted, "{sample}");
    }
}

#[test]
fn a_file_that_cannot_be_made_is_told_when_a_stream_opens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("missing").join("file");
    let endpoint = Endpoint::memory("trace-none");
    let stack = stack(&file, "1");
    let _listener = stack.listen(&endpoint).unwrap();
    let error = stack.open(&endpoint).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("missing"), "{error}");
}

/// The device takes no byte: lines are lost and counted, and the stream works.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_lines_and_nothing_else() {
    let stack = stack(Path::new("/dev/full"), "1");
    talk(&stack, "trace-full-a");
    let endpoint = Endpoint::memory("trace-full-b");
    let _listener = stack.listen(&endpoint).unwrap();
    let mut near = stack.open(&endpoint).unwrap();
    let start = Instant::now();
    loop {
        near.write_vectored(&[IoSlice::new(b"x")]).unwrap();
        let lost: u64 = near
            .control("trace.lost")
            .unwrap()
            .to_string()
            .parse()
            .unwrap();
        if lost > 5 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn text_from_elsewhere_does_not_break_a_line() {
    let mut out = String::new();
    super::filter::quote("a \"b\" \\ \n\u{1} \u{e4}", &mut out);
    assert_eq!(out, "\"a \\\"b\\\" \\\\ \\u000a\\u0001 \u{e4}\"");
}
