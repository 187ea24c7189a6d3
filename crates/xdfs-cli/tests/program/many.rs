//! Several files in one command.

use crate::support::{Place, Server, assert_content, content, names, xdfs};

#[test]
fn many_files_go_in_one_session_both_ways() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let sizes = [0, 1, 70_000, 1 << 20, 12, 3_000_003, 5, 65_536, 99];
    let mut sources = Vec::new();
    for (i, size) in sizes.iter().enumerate() {
        sources.push(place.make_here(&format!("f{i}"), &content(i as u64, *size)));
    }
    let mut args = vec!["cp".to_owned(), "--json".to_owned()];
    args.extend(sources);
    args.push(server.url("/"));
    let run = xdfs(&args).ok();
    let files: Vec<_> = run
        .json()
        .into_iter()
        .filter(|v| v["type"] == "file")
        .collect();
    assert_eq!(files.len(), sizes.len());
    for (i, (file, size)) in files.iter().zip(sizes).enumerate() {
        assert_eq!(file["bytes"], size);
        assert!(
            file["source"].as_str().unwrap().ends_with(&format!("f{i}")),
            "order: {file}"
        );
        assert_content(place.remote(&format!("f{i}")), &content(i as u64, size));
    }
    let result = run.result();
    assert_eq!(result["files"], sizes.len());
    assert_eq!(result["bytes"], sizes.iter().sum::<usize>());

    std::fs::create_dir(place.here("back")).unwrap();
    let mut args = vec!["cp".to_owned()];
    args.extend((0..sizes.len()).map(|i| server.url(&format!("/f{i}"))));
    args.push(place.here("back"));
    xdfs(&args).ok();
    for (i, size) in sizes.iter().enumerate() {
        assert_content(place.here(&format!("back/f{i}")), &content(i as u64, *size));
    }
}

#[test]
fn one_failure_leaves_the_others_alone() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let a = place.make_here("a", b"aaa");
    let b = place.make_here("b", b"bbb");
    let c = place.make_here("c", b"ccc");
    std::fs::write(place.remote("b"), b"older").unwrap();
    let none = place.here("none");
    let run = xdfs(["cp", "--json", &a, &b, &none, &c, &server.url("/")]).fails(6, &["/b", "none"]);
    assert_content(place.remote("a"), b"aaa");
    assert_content(place.remote("b"), b"older");
    assert_content(place.remote("c"), b"ccc");
    assert_eq!(
        (&run.result()["files"], &run.result()["failed"]),
        (&2.into(), &2.into())
    );
}

#[test]
fn sources_may_be_on_different_servers() {
    let (one, two) = (Place::new(), Place::new());
    let (first, second) = (Server::start(&one.root()), Server::start(&two.root()));
    std::fs::write(one.remote("x"), b"one").unwrap();
    std::fs::write(two.remote("y"), b"two").unwrap();
    xdfs(["cp", &first.url("/x"), &second.url("/y"), &one.here("")]).ok();
    assert_content(one.here("x"), b"one");
    assert_content(one.here("y"), b"two");
}

#[test]
fn many_files_need_a_directory() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let (a, b) = (place.make_here("a", b"a"), place.make_here("b", b"b"));
    std::fs::write(place.remote("file"), b"old").unwrap();
    let run = xdfs(["cp", &a, &b, &server.url("/file")]);
    assert_eq!(run.code, Some(6), "{}", run.stderr);
    assert_content(place.remote("file"), b"old");
    xdfs(["cp", &server.url("/x"), &server.url("/y"), &a]).fails(6, &["directory"]);
    assert_eq!(names(place.root()), ["file"]);
}

#[test]
fn more_large_directories_are_listed_than_a_session_has_slots_for() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let mut expected = String::new();
    std::fs::create_dir(place.remote("large")).unwrap();
    // More than may be unread of a listing.
    for number in 0..2500 {
        let name = format!("{number:0150}");
        std::fs::write(place.remote(&format!("large/{name}")), b"").unwrap();
        expected += &format!("{name}\n");
    }
    let mut args = vec!["ls".to_owned()];
    args.extend((0..140).map(|_| server.url("/large")));
    let text = xdfs(&args).ok().text();
    let parts: Vec<_> = text.split("/large:\n").skip(1).collect();
    assert_eq!(parts.len(), 140);
    for part in parts {
        assert_eq!(part.trim_end(), expected.trim_end());
    }
}
