//! Versions of files in exports: required rights, and quotas.

use xdfs_proto::delta::{Seed, SeedPiece};
use xdfs_proto::path::{Answer, Call};

use super::*;

const BLOCK: usize = 4096;

struct Scene {
    temp: tempfile::TempDir,
    exports: Exports,
}

impl Scene {
    /// An export with limits and the rights of alice, and a file of two blocks of ones.
    fn new(limits: &str, rights: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let settings = format!(
            "[[export]]\nname = 'q'\npath = 'ROOT'\n{limits}
             grant = [{{ user = 'alice', rights = {rights} }}]"
        );
        std::fs::write(temp.path().join("old"), [1; 2 * BLOCK]).unwrap();
        let exports = parse(temp.path(), &settings).unwrap();
        Self { temp, exports }
    }

    fn ask(&self, call: &Call) -> Result<Answer, Fault> {
        let store = store(&self.exports, &user("alice"));
        store.call(call, &mut |part| panic!("{part:?}"))
    }

    #[track_caller]
    fn assert_used(&self, bytes: u64, files: u64) {
        let ledger = self.exports.shared.ledger(self.temp.path());
        assert_eq!(ledger.used(), (bytes, files));
    }
}

fn signatures() -> Call {
    Call::Signatures {
        path: b"q/old".to_vec(),
        digest: DigestKind::None,
        block_bytes: BLOCK as u32,
        first: 0,
        count: 2,
    }
}

/// Two blocks of ones, the first of them misplaced, for a file of `length` bytes.
fn seed(to: &str, length: u64) -> Call {
    let piece = |offset: u64, from_offset| {
        let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, offset);
        hasher.update(&[1; BLOCK]);
        SeedPiece {
            offset,
            from_offset,
            length: BLOCK as u32,
            state: hasher.finish(FileId(0)).1.state,
        }
    };
    Call::Seed(Box::new(Seed {
        from: b"q/old".to_vec(),
        to: to.into(),
        overwrite: true,
        sparse: false,
        tag: SourceTag([7; 16]),
        length,
        digest: DigestKind::Crc64Nvme,
        block_bytes: BLOCK as u32,
        pieces: vec![piece(0, 5), piece(2 * BLOCK as u64, 0)],
    }))
}

const COPIED: Answer = Answer::Copied {
    bytes: 2 * BLOCK as u64,
};

#[test]
fn each_right_allows_its_part() {
    let all = Scene::new("", "'all'");
    assert!(matches!(all.ask(&signatures()), Ok(Answer::Signatures(s)) if s.blocks.len() == 2));
    assert_eq!(all.ask(&seed("q/new", 20_000)).unwrap(), COPIED);
    assert_eq!(all.ask(&seed("q/old", 20_000)).unwrap(), COPIED);
    let denied = Code::PermissionDenied;
    // Users without read access learn nothing about the content.
    let blind = Scene::new("", "['list', 'create', 'write', 'delete']");
    assert_fault(blind.ask(&signatures()), denied, "q/old");
    assert_fault(blind.ask(&seed("q/new", 20_000)), denied, "q/old");
    let reader = Scene::new("", "['read', 'list']");
    assert!(reader.ask(&signatures()).is_ok());
    assert_fault(reader.ask(&seed("q/new", 20_000)), denied, "q/new");
    let maker = Scene::new("", "['read', 'create']");
    assert_eq!(maker.ask(&seed("q/new", 20_000)).unwrap(), COPIED);
    assert_fault(maker.ask(&seed("q/old", 20_000)), denied, "q/old");
    assert_eq!(names(reader.temp.path()), ["old"]);
    assert_eq!(names(blind.temp.path()), ["old"]);
}

#[test]
fn nothing_is_seeded_out_of_an_export_or_into_what_is_built_in() {
    let scene = Scene::new("", "'all'");
    for to in ["q/../../new", "other/new", "new", ""] {
        scene.ask(&seed(to, 20_000)).unwrap_err();
    }
    scene.ask(&seed("mem:null", 20_000)).unwrap_err();
    assert_eq!(names(scene.temp.path()), ["old"]);
}

#[test]
fn what_is_begun_counts_like_an_unfinished_transfer() {
    let scene = Scene::new("quota_bytes = 40000", "'all'");
    let old = 2 * BLOCK as u64;
    scene.assert_used_after(&seed("q/new", 20_000), Ok(COPIED), (old + 20_000, 2));
    // The resumed transfer already has its share.
    let store = store(&scene.exports, &user("alice"));
    let opened = store.open_sink(&of_length("q/new", 20_000)).unwrap();
    assert_eq!(opened.durable.len(), 2);
    drop(opened);
    scene.assert_used(old + 20_000, 2);
    let fault = assert_fault(
        scene.ask(&seed("q/other", 20_000)),
        Code::QuotaExceeded,
        "q/other",
    );
    assert_eq!(fault.operation, "begin with the old file");
    scene.assert_used(old + 20_000, 2);
    let small = Scene::new("largest_file = 10000", "'all'");
    assert_fault(
        small.ask(&seed("q/new", 20_000)),
        Code::QuotaExceeded,
        "q/new",
    );
    assert_eq!(names(small.temp.path()), ["old"]);
}

impl Scene {
    #[track_caller]
    fn assert_used_after(&self, call: &Call, expected: Result<Answer, Fault>, used: (u64, u64)) {
        assert_eq!(self.ask(call), expected);
        self.assert_used(used.0, used.1);
    }
}
