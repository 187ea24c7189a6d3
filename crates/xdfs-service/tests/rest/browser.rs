//! The pages in Chromium: by keyboard alone, for screen readers, in light and dark, on wide and
//! narrow screens.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use xdfs::{Job, JobPlace, TreeJob, TreeOptions, Way};
use xdfs_service::{ScheduleSubmission, StateName, Submission};
use xdfs_testkit::skip;

use super::Scene;
use super::programs::program;

/// The folder with the packages that the script needs, installed if they are missing. An error is
/// what stands in the way.
fn packages(npm: &Path) -> Result<PathBuf, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rest/browser");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    fs::create_dir_all(&folder).unwrap();
    let is_same = |name: &str| {
        let read = |folder: &Path| fs::read(folder.join(name)).ok();
        read(&sources) == read(&folder)
    };
    if is_same("package-lock.json") && folder.join("node_modules/axe-core").is_dir() {
        return Ok(folder);
    }
    for name in ["package.json", "package-lock.json"] {
        fs::copy(sources.join(name), folder.join(name)).unwrap();
    }
    let mut command = Command::new(npm);
    command
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&folder);
    let ran = command.output().map_err(|error| error.to_string())?;
    match ran.status.success() {
        true => Ok(folder),
        false => {
            // So that they are asked for again.
            let _ = fs::remove_file(folder.join("package-lock.json"));
            Err(String::from_utf8_lossy(&ran.stderr).into_owned())
        }
    }
}

#[test]
fn every_page_works_by_keyboard_and_without_a_violation() {
    let chromium = program(&["chromium", "chromium-browser", "google-chrome"]);
    let Some(chromium) = chromium else {
        return skip::test("there is no Chromium");
    };
    let (Some(node), Some(npm)) = (program(&["node"]), program(&["npm"])) else {
        return skip::test("there is no Node.js with npm");
    };
    let packages = match packages(&npm) {
        Ok(packages) => packages,
        Err(error) => return skip::test(format!("npm can't install packages: {error}")),
    };
    let scene = Scene::new();
    let (name, here) = ("<b>results & more.bin", scene.path("here"));
    fs::create_dir(&here).unwrap();
    fs::write(here.join(name), vec![7; 3_000_000]).unwrap();
    for number in 0..20 {
        fs::create_dir(here.join(format!("run {number}"))).unwrap();
    }
    // A job with entries that fail, as something else is at their places.
    let (source, root) = (scene.path("tree"), scene.path("root/tree/tree"));
    for number in 0..30 {
        fs::create_dir_all(root.join(format!("{number}/in the way"))).unwrap();
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join(number.to_string()), "content").unwrap();
    }
    let tree = Job::Tree(TreeJob {
        source: JobPlace::Local(source),
        target: scene.server_place("tree"),
        way: Way::Any,
        options: TreeOptions::default(),
    });
    let submission = Submission::new("A tree that fails", vec![tree]);
    let failed = scene.client().submit(&submission, "1").unwrap().job.id;
    let failed = scene.until_ended(failed);
    assert!(!failed.failures.is_empty(), "{failed:?}");

    // One whose files are listed, and a schedule of such ones.
    let listed = scene.path("runs");
    fs::create_dir(&listed).unwrap();
    for number in 0..8 {
        let content = vec![7; 300_000 * (number + 1)];
        fs::write(listed.join(format!("<i>run {number}.dat")), content).unwrap();
    }
    let tree = Job::Tree(TreeJob {
        source: JobPlace::Local(listed),
        target: scene.server_place("archive"),
        way: Way::Any,
        options: TreeOptions::default(),
    });
    let mut submission = Submission::new("Results of May", vec![tree]);
    submission.manifest = true;
    let job = scene.client().submit(&submission, "2").unwrap().job.id;
    let done = scene.until_ended(job);
    assert_eq!(done.job.state, StateName::Succeeded, "{done:?}");
    let schedule = ScheduleSubmission {
        every: "30 2 * * 1-5".to_owned(),
        starts_at: None,
        job: submission,
    };
    scene.client().schedule(&schedule, "3").unwrap();

    let settings = json!({
        "listed": job.to_string(),
        "link": scene.link,
        "source": here.to_str().unwrap(),
        "target": format!("{}/", scene.server_url),
        "name": name,
        "failed": failed.job.id.to_string(),
        "pictures": env::var("XDFS_PICTURES").ok(),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rest/browser/drive.mjs");
    let mut command = Command::new(node);
    let words: [OsString; 4] = [
        script.into(),
        packages.into(),
        chromium.into(),
        settings.to_string().into(),
    ];
    let ran = command.args(words).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let copied = fs::read(scene.path("root").join(name)).unwrap();
    assert_eq!(copied, vec![7; 3_000_000]);
}
