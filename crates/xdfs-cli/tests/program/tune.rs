//! The search for the setting that suits a path: its bounds, its files, and trouble in between.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Place, Run, Running, Server, names, program, xdfs};

/// The samples among the JSON lines of a run.
fn samples(run: &Run) -> Vec<Value> {
    let lines = run.json().into_iter();
    lines.filter(|line| line["type"] == "sample").collect()
}

/// The result, which is the last line.
#[track_caller]
fn result(run: &Run) -> Value {
    let last = run.json().pop().expect("there is no output");
    assert_eq!(last["type"], "tune", "{last}");
    last
}

fn bytes(samples: &[Value]) -> u64 {
    samples.iter().map(|s| s["bytes"].as_u64().unwrap()).sum()
}

/// The number of rows of a file of samples, each with a value for every column.
#[track_caller]
fn rows(path: impl AsRef<Path>) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let columns = lines.next().unwrap();
    assert!(columns.starts_with("phase,channels,window_bytes,bytes,"));
    for line in lines.clone() {
        assert_eq!(line.matches(',').count(), columns.matches(',').count());
    }
    lines.count()
}

#[test]
fn the_samples_are_printed_written_and_drawn() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let [csv, svg, png] = ["t.csv", "t.svg", "t.PNG"].map(|name| place.here(name));
    let url = server.url("");
    let flags = ["--max-bytes", "256M", "--json", "--csv", &csv];
    let plots = ["--plot", &svg, "--plot", &png];
    for way in ["--upload", "--download"] {
        let run = xdfs([&["tune", &url, way], &flags[..], &plots].concat()).ok();
        let (samples, result) = (samples(&run), result(&run));
        assert!(bytes(&samples) <= 256 << 20, "{result}");
        assert_eq!(bytes(&samples), result["bytes"].as_u64().unwrap());
        assert_eq!(samples.len(), rows(&csv), "{way}");
        assert_eq!(samples[0]["setting"], result["default"], "{way}");
        let phases = |phase: &str| samples.iter().filter(|s| s["phase"] == phase).count();
        assert_eq!(phases("comparison"), 6, "{way}");
        // The default, and nine settings that span the surface.
        assert_eq!(phases("survey"), 10, "{way}");
        assert!(result["noise"].as_f64().unwrap() >= 0.0);
        assert!(result["gain"].as_f64().unwrap() >= 1.0);
    }
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.trim_end().ends_with("</svg>"));
    assert_eq!(
        drawn.matches("<text").count(),
        drawn.matches("</text>").count()
    );
    assert!(drawn.contains("B/s") && drawn.contains("<polygon") && drawn.contains("<circle"));
    // The rates of nine settings at least, and the labels of both axes, twice.
    assert!(drawn.matches("<text").count() > 30, "{drawn}");
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(&png).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(
        pixels.len(),
        3 * frame.width as usize * frame.height as usize
    );
    let colors: std::collections::HashSet<_> = pixels.chunks(3).collect();
    assert!(colors.len() > 50, "{}", colors.len());
    // Text is there too: the title is black on white, at the top.
    let top = &pixels[..3 * frame.width as usize * 30];
    assert!(top.chunks(3).filter(|pixel| *pixel == [0, 0, 0]).count() > 200);
    assert!(names(place.root()).is_empty());
}

#[test]
fn what_is_given_is_not_searched() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let picture = place.here("t.svg");
    let url = server.url("");
    let words = ["tune", &url, "--max-bytes", "64M", "--json", "-n", "2"];
    let run = xdfs([&words[..], &["--plot", &picture]].concat()).ok();
    for sample in samples(&run) {
        assert_eq!(sample["setting"]["channels"], 2, "{sample}");
    }
    assert_eq!(result(&run)["default"]["channels"], 2);
    // One row of cells spans no surface.
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("<rect") && !drawn.contains("<polygon"));
    // With nothing to search there is only the default.
    let run = xdfs([&words[..], &["-w", "1M"]].concat()).ok();
    assert_eq!(samples(&run).len(), 1);
    assert_eq!(result(&run)["fastest"], Value::Null);
}

#[test]
fn people_are_told_the_best_setting() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let url = server.url("/");
    let run = xdfs(["tune", &url, "--max-bytes", "64M"]).ok();
    let told = "is trusted from now on";
    assert_eq!(run.stderr.matches(told).count(), 1, "{}", run.stderr);
    let text = run.text();
    assert!(text.starts_with("default  "), "{text}");
    assert!(
        text.contains("\nbest: ") && text.contains("(noise "),
        "{text}"
    );
    assert!(text.contains("\n-n 64   -w auto"), "{text}");
    let quiet = xdfs(["tune", &url, "--max-bytes", "1M", "-q"]).ok();
    assert_eq!((quiet.text().as_str(), quiet.stderr.as_str()), ("", ""));
}

#[test]
fn a_server_that_forbids_it_is_told_of() {
    let place = Place::new();
    let root = place.root();
    let settings = format!(
        "listen = [\"127.0.0.1:0\"]\nfolder = '{}'\n[[export]]\nname = \"public\"\n\
         path = '{}'\npublic = true\n",
        place.here("server"),
        root.display()
    );
    let file = place.make_here("server.toml", settings.as_bytes());
    let server = Server::start_with(&root, &["--config", &file]);
    let csv = place.here("t.csv");
    let url = server.url("").replace("xdfs://", "xdfs://anonymous@");
    // This server has a key of its own, and another test's may have had its port.
    let tune = |words: &[&str]| {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", place.here("client"));
        command.arg("tune").args(words).stdin(Stdio::null());
        Running::start(&mut command).wait()
    };
    let run = tune(&[&url, "--json", "--csv", &csv]).fails(5, &["mem:null"]);
    let lines = run.json();
    assert_eq!((lines.len(), &lines[0]["type"]), (1, &"error".into()));
    assert_eq!(lines[0]["code"], "permission-denied");
    // Nothing was measured, so nothing is written.
    assert!(!Path::new(&csv).exists());
    tune(&[&url, "--download"]).fails(5, &["mem:zero"]);
    xdfs(["tune", "xdfs://127.0.0.1:1"]).fails(3, &["127.0.0.1:1", "hint: "]);
}

#[test]
fn a_file_that_can_not_be_written_costs_no_bytes() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let [missing, file] = [place.here("none/t.csv"), place.make_here("file", b"x")];
    let url = server.url("");
    let run = xdfs(["tune", &url, "--csv", &missing]).fails(4, &["none"]);
    assert_eq!(run.text(), "");
    let below = format!("{file}/t.svg");
    assert_eq!(xdfs(["tune", &url, "--plot", &below]).text(), "");
    let directory = place.here("t.svg");
    fs::create_dir(&directory).unwrap();
    let run = xdfs(["tune", &url, "--plot", &directory]).fails(6, &["t.svg"]);
    assert_eq!(run.text(), "");
}

#[cfg(target_os = "linux")]
#[test]
fn what_came_before_a_break_is_kept() {
    let place = Place::new();
    let mut server = Server::start(&place.root());
    let [csv, picture] = ["t.csv", "t.png"].map(|name| place.here(name));
    let url = server.url("");
    let mut command = program();
    command.args(["tune", &url, "--json", "--max-bytes", "100T"]);
    command.args(["--csv", &csv, "--plot", &picture]);
    let mut running = Running::start(&mut command);
    running.wait_for_output("\"phase\":\"survey\"");
    server.running.kill();
    let run = running.wait();
    assert!(
        matches!(run.code, Some(3 | 12)),
        "{:?} {}",
        run.code,
        run.stderr
    );
    assert!(
        run.stderr.contains("had been taken before that"),
        "{}",
        run.stderr
    );
    let last = run.json().pop().unwrap();
    assert_eq!(last["type"], "error", "{last}");
    let taken = samples(&run).len();
    assert!(taken >= 1 && rows(&csv) == taken);
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_it_with_what_was_found() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let csv = place.here("t.csv");
    let mut command = program();
    command.args(["tune", &server.url(""), "--json", "--max-bytes", "100T"]);
    let mut running = Running::start(command.args(["--csv", &csv]));
    running.wait_for_output("\"phase\":\"survey\"");
    running.signal("INT");
    let run = running.wait();
    assert_eq!(run.code, Some(130), "{}", run.stderr);
    let found = run.json().into_iter().find(|line| line["type"] == "tune");
    assert_eq!(found.unwrap()["end"], "stopped");
    assert_eq!(rows(&csv), samples(&run).len());
}

#[test]
fn a_server_that_never_answers_ends_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("xdfs://{}", listener.local_addr().unwrap());
    let words = ["tune", &url, "--insecure", "--max-time", "0.5"];
    xdfs(words).fails(11, &["nothing has arrived", "hint: "]);
    // Not even the default was measured.
    let place = Place::new();
    let server = Server::start(&place.root());
    let run = xdfs(["tune", &server.url(""), "--max-time", "0.001"]);
    assert_eq!((run.code, run.text().as_str()), (Some(11), ""));
}

/// Over an emulated network, where the bytes are counted that pass it.
#[cfg(target_os = "linux")]
mod far {
    use std::time::Duration;

    use xdfs_testkit::wan::{Direction, Link, Plan};

    use super::*;
    use crate::far::{network, network_of, run, serve};

    #[test]
    fn the_limit_of_bytes_is_kept_both_ways() {
        const MOST: u64 = 6_000_000;
        let link = Link::delay(Duration::from_millis(5)).with_bandwidth(20_000_000);
        let Some(wan) = network(link) else { return };
        let place = Place::new();
        let server = serve(&wan, &place.root(), &[]);
        let url = server.url("");
        let ways = [
            ("--upload", Direction::LeftToRight),
            ("--download", Direction::RightToLeft),
        ];
        for (way, direction) in ways {
            let before = wan.counters(direction).unwrap().bytes;
            let words = ["tune", "--insecure", "--json", &url, way];
            let most = MOST.to_string();
            let run = run(&wan, &[&words[..], &["--max-bytes", &most]].concat()).ok();
            assert!(bytes(&samples(&run)) <= MOST, "{way}");
            // Headers, handshakes and what the link dropped come on top.
            let passed = wan.counters(direction).unwrap().bytes - before;
            assert!(passed < MOST * 2, "{way}: {passed} bytes passed");
            assert!(samples(&run).len() > 9, "{way}");
        }
    }

    #[test]
    fn the_limit_of_time_is_kept() {
        // A sample takes six round trips at least: 19 of them don't fit.
        let Some(wan) = network(Link::delay(Duration::from_millis(50))) else {
            return;
        };
        let place = Place::new();
        let server = serve(&wan, &place.root(), &[]);
        let words = ["tune", "--insecure", "--json", "--max-time", "2"];
        let run = run(&wan, &[&words[..], &[&server.url("")]].concat()).ok();
        assert_eq!(result(&run)["end"], "time");
        assert!(run.stderr.contains("--max-time was over"), "{}", run.stderr);
        assert!(samples(&run).len() < 19);
    }

    #[test]
    fn small_windows_want_many_channels_and_small_packets_are_named() {
        // A channel moves at most 128 KiB in a round trip of 20 ms: a twelfth of the link.
        let link = Link::delay(Duration::from_millis(10)).with_bandwidth(80_000_000);
        let Some(wan) = network_of(Plan::new(link).with_mtu(1000)) else {
            return;
        };
        let place = Place::new();
        let server = serve(&wan, &place.root(), &[]);
        let url = server.url("");
        let words = [
            "tune",
            "--insecure",
            "--json",
            "-w",
            "64K",
            "--max-time",
            "15",
        ];
        let run = run(&wan, &[&words[..], &[&url]].concat()).ok();
        let result = result(&run);
        assert!(
            result["fastest"]["channels"].as_u64().unwrap() > 1,
            "{result}"
        );
        let advice = result["advice"].as_array().unwrap().iter();
        let mtu = advice.filter(|advice| advice["reason"].as_str().unwrap().contains("1000 bytes"));
        assert_eq!(mtu.count(), 1, "{result}");
    }
}
