//! Servers on systems that mislead them: whose clock is an hour off, and where a name has another
//! address at each look. A library that the loader puts before that of the system does it.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use crate::stripes::{Scene as Group, bytes_of, dropped, sources};
use crate::support::{Place, Running, assert_content, content, program};
use crate::third_party::Scene;

const HOUR: i64 = 3600;

/// `SKEW_S` is added to the clock. `FLIPS` has the addresses of `flips.test`, the one for the first
/// look, and the other one for all others.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now)
{
    int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(id, now);
    const char *skew = getenv("SKEW_S");
    if (result == 0 && id == CLOCK_REALTIME && skew)
        now->tv_sec += atol(skew);
    return result;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    static atomic_int looks;
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    const char *flips = getenv("FLIPS");
    char address[64] = "";
    if (flips && node && strcmp(node, "flips.test") == 0) {
        const char *comma = strchr(flips, ',');
        if (comma && atomic_fetch_add(&looks, 1) == 0)
            strncat(address, flips, comma - flips);
        else
            strncat(address, comma ? comma + 1 : flips, sizeof address - 1);
        node = address;
    }
    return next(node, service, hints, found);
}
"#;

/// Builds the library. Returns its path.
fn library(place: &Place) -> String {
    let source = place.make_here("odd.c", LIBRARY.as_bytes());
    let library = place.here("odd.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", &library, &source, "-ldl"])
        .status();
    assert!(built.unwrap().success(), "a C compiler is needed");
    library
}

/// The seconds of the first event of a log.
fn first_time(scene: &Scene, name: &str) -> i64 {
    let events = scene.audit(name);
    let time = events[0]["time"].as_str().unwrap();
    let output = Command::new("date").args(["-d", time, "+%s"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn clocks_that_are_an_hour_off_are_no_reason_against_a_copy_between_servers() {
    let tools = Place::new();
    let library = library(&tools);
    for skews in [[HOUR, -HOUR], [-HOUR, HOUR]] {
        let place = Place::new();
        let [source, target] = ["source", "target"].map(|name| {
            let skew = skews[usize::from(name == "target")].to_string();
            let flags = &["--connect-to", "127.0.0.0/8"];
            Scene::serve_as(&place, name, flags, |serve| {
                serve.env("LD_PRELOAD", &library).env("SKEW_S", &skew);
            })
        });
        let expected = content(871, 5_000_000);
        std::fs::write(format!("{}/file", place.here("source")), &expected).unwrap();
        let scene = Scene {
            place,
            source,
            target,
        };
        let places = [scene.source.url("/file"), scene.target.url("/copy")];
        let mut command = program();
        command.args(["cp", "--json", "--between", "direct"]);
        Running::start(command.args(&places)).wait().ok();
        assert_content(scene.copied("copy"), &expected);
        let apart = first_time(&scene, "source") - first_time(&scene, "target");
        assert!((apart - 2 * skews[0]).abs() < 600, "{apart} s");
    }
}

#[test]
fn members_of_a_group_whose_clocks_are_hours_apart_move_a_file_together() {
    let tools = Place::new();
    let library = library(&tools);
    let mut scene = Group::new(3);
    for (member, skew) in [(0, HOUR), (1, -HOUR)] {
        scene.members[member].server.running.kill();
        scene.restart_as(member, true, |serve| {
            serve.env("LD_PRELOAD", &library);
            serve.env("SKEW_S", skew.to_string());
        });
    }
    let scene = scene.limited(8_000_000);
    let expected = content(872, 20 << 20);
    let source = scene.here.make_here("source", &expected);
    let back = scene.here.here("back");
    for args in [[&*source, &scene.url(0)], [&scene.url(0), &*back]] {
        let flags = ["cp", "--json", "--stripe", "-n", "1"];
        let run = scene.run(&[&flags[..], &args].concat()).ok();
        let found = sources(&run);
        assert_eq!(
            (found.len(), dropped(&found)),
            (3, vec![]),
            "{}",
            run.text()
        );
        assert!(
            bytes_of(&found).iter().all(|own| *own > 0),
            "{}",
            run.text()
        );
    }
    assert_content(&back, &expected);
}

/// The name has the allowed address when the server looks, and another one of the same machine
/// whenever it is looked up again.
#[test]
fn a_name_that_changes_after_it_was_checked_leads_nowhere_else() {
    let place = Place::new();
    let library = library(&place);
    let source = Scene::serve(&place, "source", "127.0.0.1:0", &[]);
    let port = source.addresses[0].rsplit_once(':').unwrap().1.to_owned();
    let inwards = TcpListener::bind(format!("127.0.0.66:{port}")).unwrap();
    inwards.set_nonblocking(true).unwrap();
    let target = Scene::serve_as(&place, "target", &["--connect-to", "127.0.0.1"], |serve| {
        serve.env("LD_PRELOAD", &library);
        serve.env("FLIPS", "127.0.0.1,127.0.0.66");
    });
    let expected = content(873, 3_000_000);
    std::fs::write(format!("{}/file", place.here("source")), &expected).unwrap();
    let scene = Scene {
        place,
        source,
        target,
    };
    let cp = |to: &str| {
        let places = [
            format!("xdfs://flips.test:{port}/file"),
            scene.target.url(to),
        ];
        let mut command = program();
        command
            .env("LD_PRELOAD", &library)
            .env("FLIPS", "127.0.0.1");
        command.args(["cp", "--json"]);
        Running::start(command.args(&places)).wait().ok()
    };
    let way = |run: &crate::support::Run| {
        let records = run.json();
        let file = records.iter().find(|own| own["type"] == "file").unwrap();
        file["way"].clone()
    };
    // The first look: the name is allowed, and the connection goes to what was looked at.
    let run = cp("/one");
    assert_eq!(way(&run), Value::from("direct"), "{}", run.text());
    assert_content(scene.copied("one"), &expected);
    // From now on it has the other address. That isn't connected to; the address that the client
    // has seen is.
    let run = cp("/two");
    assert_eq!(way(&run), Value::from("direct"), "{}", run.text());
    assert_content(scene.copied("two"), &expected);
    let reached = inwards.accept().map(|_| ());
    assert_eq!(
        reached.unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "the server has connected inwards"
    );
}
