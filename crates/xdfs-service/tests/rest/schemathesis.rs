//! The service against its own description, by schemathesis with all of its checks.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use xdfs_service::Submission;
use xdfs_testkit::skip;

use super::Scene;
use super::programs::program;

#[test]
fn the_service_is_as_its_description_says() {
    let Some(program) = program(&["schemathesis"]) else {
        return skip::test("there is no schemathesis");
    };
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    // A job with files, of which a manifest can be read.
    let mut submission = Submission::new("one", vec![scene.upload(&file, "file", None)]);
    submission.manifest = true;
    let id = scene.client().submit(&submission, "1").unwrap().job.id;
    scene.until_ended(id);

    let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rest/schemathesis.toml");
    let url = format!("{}/api/v1/openapi.json", scene.url);
    let words: [OsString; 11] = [
        "--config-file".into(),
        settings.into(),
        "run".into(),
        url.into(),
        "--checks=all".into(),
        "--max-examples=30".into(),
        "--seed=1".into(),
        "--generation-database=none".into(),
        "--no-color".into(),
        "--header".into(),
        format!("Authorization: {}", scene.token()).into(),
    ];
    let mut command = Command::new(program);
    let ran = command.args(words).current_dir(scene.folder.path());
    let ran = ran.output().unwrap();
    let (out, errors) = (ran.stdout, ran.stderr);
    let text = [out, errors].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ran.status.success(), "{}", text.concat());
}
