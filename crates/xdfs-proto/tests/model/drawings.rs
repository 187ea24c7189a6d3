//! The four machines of a bulk transfer as state diagrams: client and server, upload and download.
//!
//! They stand in `docs/protocol/machines.md`, and are what the machines do: every step of an
//! instance with one file is looked at, and each that changes a state or says something is an
//! arrow. After a deliberate change run the test with `XDFS_DRAWINGS=write`, and look at the
//! difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::files::{self, World};

/// The drawings, by the side that sends and whether the file goes down.
const DRAWINGS: [(&str, usize, bool); 4] = [
    ("client, upload", 0, false),
    ("server, upload", 1, false),
    ("client, download", 1, true),
    ("server, download", 0, true),
];

/// What leads from a state to another.
type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// Every arrow of the sender, and of the receiver.
fn arrows(download: bool) -> [Arrows; 2] {
    let mut arrows = [Arrows::new(), Arrows::new()];
    let step = |before: &World, event, after: &World| {
        let (from, _) = before.stands();
        let (to, said) = after.stands();
        for (side, input) in before.input(event).into_iter().enumerate() {
            let Some(input) = input else { continue };
            // ACK is counted a channel, and not a file.
            let mut frames: Vec<&str> = said.0[side].iter().map(String::as_str).collect();
            frames.retain(|name| *name != "ACK");
            frames.dedup();
            if from[side] == to[side] && frames.is_empty() || input == "?ACK" {
                continue;
            }
            let mut text = match &input[..] {
                "block" => String::new(),
                input => format!("{input} "),
            };
            for frame in frames {
                // How a block arrives is the receiver's business.
                let name = frame.split(' ').next().unwrap_or(frame);
                let _ = write!(text, "!{name} ");
            }
            let states = (from[side].clone(), to[side].clone());
            let labels = arrows[side].entry(states).or_default();
            labels.insert(text.trim_end().to_owned());
        }
    };
    crate::watch(files::drawn(download), step);
    arrows
}

fn drawing(arrows: &Arrows) -> String {
    let mut text = String::from("```mermaid\nstateDiagram-v2\n");
    for ((from, to), labels) in arrows {
        for label in labels {
            let _ = writeln!(text, "    {from} --> {to}: {label}");
        }
    }
    text + "```\n"
}

#[test]
fn the_drawings_show_what_the_machines_do() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/machines.md");
    let text = std::fs::read_to_string(&path).expect("the page of the machines");
    let drawn = [arrows(false), arrows(true)];
    let mut made = text.clone();
    for (name, side, download) in DRAWINGS {
        let (begin, end) = (format!("<!-- drawn: {name} -->\n"), "<!-- end -->\n");
        let start = made.find(&begin).expect("the place of a drawing") + begin.len();
        let length = made[start..].find(end).expect("its end");
        let drawing = drawing(&drawn[usize::from(download)][side]);
        made.replace_range(start..start + length, &drawing);
    }
    if std::env::var("XDFS_DRAWINGS").is_ok_and(|v| v == "write") {
        std::fs::write(&path, made).expect("the page can be written");
    } else {
        let differs = || made.lines().zip(text.lines()).find(|(a, b)| a != b);
        assert!(
            made == text,
            "XDFS_DRAWINGS=write draws anew: {:?}",
            differs()
        );
    }
}
