//! Tests of both forms of cursors, on any file system.

use super::*;

fn all(dir: &Dir, by_position: bool, entries_max: u32) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cursor = Vec::new();
    loop {
        let mut parts = Vec::new();
        let end = list_open(dir, by_position, b"d", &cursor, entries_max, &mut |part| {
            parts.push(part);
            Ok(())
        });
        parts.push(end.unwrap());
        let mut next = None;
        for part in parts {
            let Answer::Entries { entries, cursor } = part else {
                panic!("{part:?}")
            };
            assert!(entries.len() <= entries_max as usize);
            names.extend(entries.into_iter().map(|entry| entry.name));
            next = cursor;
        }
        match next {
            Some(next) => cursor = next,
            None => return names,
        }
    }
}

#[test]
fn both_orders_give_every_name_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for i in 0..1500 {
        let name = format!("name-{i}");
        std::fs::write(temp.path().join(&name), "").unwrap();
        expected.push(name.into_bytes());
    }
    std::fs::write(temp.path().join(".x.xdfs-part"), "").unwrap();
    expected.sort();
    let dir = Dir::open(temp.path()).unwrap();
    for entries_max in [1, 7, 1499, 1500, 1501, u32::MAX] {
        let mut orders = vec![false];
        orders.extend(dir.has_lasting_positions().then_some(true));
        for by_position in orders {
            let mut names = all(&dir, by_position, entries_max);
            if !by_position {
                assert!(names.is_sorted());
            }
            names.sort();
            assert!(names == expected, "{by_position} {entries_max}");
        }
    }
}

#[test]
fn a_cursor_of_the_other_order_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(temp.path().join(name), "").unwrap();
    }
    let dir = Dir::open(temp.path()).unwrap();
    let first = list_open(&dir, false, b"d", b"", 1, &mut |_| Ok(())).unwrap();
    let Answer::Entries { cursor, .. } = first else {
        panic!("{first:?}")
    };
    let again = list_open(&dir, true, b"d", &cursor.unwrap(), 1, &mut |_| Ok(()));
    assert_eq!(again.unwrap_err().code, Code::InvalidArgument);
}
