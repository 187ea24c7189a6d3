//! Options that contradict each other, or that no service can follow: found before a job waits for
//! its turn.

use xdfs::store::Traits;
use xdfs::{DigestKind, Job, JobPlace, Skip, TransferParameters, TreeOptions, Way};

/// Whether something is wrong, with which field, and what.
type Rule = (bool, &'static str, &'static str);

/// The first field of a transfer that contradicts another one, and what is wrong with it;
/// `manifest` says whether its job has one.
pub(super) fn contradiction(job: &Job, manifest: bool) -> Option<(String, &'static str)> {
    let (rules, prefix) = match job {
        Job::File(job) => {
            let options = &job.options;
            let mut rules = of_places([&job.source, &job.target], job.way);
            let cause = "only what is in memory ends after a time";
            rules.push((options.duration.is_some(), "options.duration", cause));
            rules.extend(of_parameters(&options.parameters, options.skip, manifest));
            (rules, "options.")
        }
        Job::Tree(job) => {
            let (options, ends) = (&job.options, [&job.source, &job.target]);
            let mut rules = of_places(ends, job.way);
            rules.extend(of_parameters(&options.parameters, options.skip, manifest));
            rules.extend(of_tree(options, ends, manifest));
            (rules, "options.")
        }
        Job::Sync(job) => {
            let (options, ends) = (&job.options, [&job.source, &job.target]);
            let delete = "it has a meaning with delete only";
            let (force, count) = (options.force, options.delete_max.is_some());
            let between = "changed files are sent whole between servers";
            let mut rules = of_places(ends, job.way);
            rules.extend([
                (count && !options.delete, "options.delete_max", delete),
                (force && !options.delete, "options.force", delete),
                (options.delta && are_servers(ends), "options.delta", between),
            ]);
            // A synchronisation replaces what differs, and skips nothing else.
            let parameters = &options.tree.parameters;
            rules.extend(of_parameters(parameters, Skip::Never, manifest));
            rules.extend(of_tree(&options.tree, ends, manifest));
            (rules, "options.tree.")
        }
        _ => return None,
    };
    let found = rules.into_iter().find(|(is_wrong, ..)| *is_wrong);
    found.map(|(_, field, cause)| (field.replace("tree.", prefix), cause))
}

fn are_servers(ends: [&JobPlace; 2]) -> bool {
    ends.iter()
        .all(|place| matches!(place, JobPlace::Server(_)))
}

fn of_places(ends: [&JobPlace; 2], way: Way) -> Vec<Rule> {
    let between = "only a copy between two servers has one";
    vec![
        (ends[0] == ends[1], "target", "it is the source"),
        (way != Way::Any && !are_servers(ends), "way", between),
    ]
}

/// `tree.` stands for the options of a tree, or of a file.
fn of_parameters(parameters: &TransferParameters, skip: Skip, manifest: bool) -> [Rule; 4] {
    let rate = parameters.rate_bytes_per_s_max;
    let is_blake3 = matches!(parameters.digest, None | Some(DigestKind::Blake3));
    let is_dry = manifest && parameters.dry_run;
    let both = parameters.overwrite && skip == Skip::All;
    [
        (
            rate == Some(0),
            "tree.parameters.rate_bytes_per_s_max",
            "nothing moves at a rate of 0",
        ),
        (
            both,
            "tree.skip",
            "what exists is either skipped or replaced (overwrite)",
        ),
        (
            manifest && !is_blake3,
            "tree.parameters.digest",
            "a manifest has BLAKE3",
        ),
        (
            is_dry,
            "tree.parameters.dry_run",
            "nothing arrives that a manifest could list",
        ),
    ]
}

fn of_tree(options: &TreeOptions, ends: [&JobPlace; 2], manifest: bool) -> [Rule; 6] {
    let is_blake3 = matches!(options.file_digests, None | Some(DigestKind::Blake3));
    let has_journal = options.journal.is_some();
    let journal = "the service keeps the journals of its jobs";
    let digest = "a manifest has BLAKE3";
    let lacks = |kept: fn(&Traits) -> bool| match ends {
        [JobPlace::Server(source), JobPlace::Server(target)] => {
            let servers = [source, target].map(|server| server.address.traits());
            !servers.iter().all(kept)
        }
        _ => false,
    };
    let (lacks_packs, lacks_links) = (lacks(|there| there.packs), lacks(|there| there.hard_links));
    let cause = "it can't be kept between servers of these kinds";
    [
        (has_journal, "tree.journal", journal),
        (manifest && !is_blake3, "tree.file_digests", digest),
        (lacks_packs && options.owner, "tree.owner", cause),
        (lacks_packs && options.xattrs, "tree.xattrs", cause),
        (lacks_packs && options.read_times, "tree.read_times", cause),
        (lacks_links && options.hard_links, "tree.hard_links", cause),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Submission;

    #[test]
    fn options_that_contradict_each_other_are_refused_with_their_field() {
        let (up, between, to_ftp) = (
            r#""source":"/a","target":"xdfs://h/a""#,
            r#""source":"xdfs://g/a","target":"xdfs://h/a""#,
            r#""source":"xdfs://g/a","target":"ftps://h/a""#,
        );
        for (kind, places, more, options, field) in [
            ("file", up, r#""way":"direct","#, "", "way"),
            (
                "file",
                up,
                "",
                r#""parameters":{"rate_bytes_per_s_max":0}"#,
                "options.parameters.rate_bytes_per_s_max",
            ),
            (
                "file",
                up,
                "",
                r#""parameters":{"overwrite":true},"skip":"all""#,
                "options.skip",
            ),
            ("file", up, "", r#""duration":"5s""#, "options.duration"),
            (
                "file",
                up,
                "",
                r#""parameters":{"digest":"crc64nvme"}"#,
                "options.parameters.digest",
            ),
            (
                "file",
                up,
                "",
                r#""parameters":{"digest":"none"}"#,
                "options.parameters.digest",
            ),
            (
                "file",
                up,
                "",
                r#""parameters":{"dry_run":true}"#,
                "options.parameters.dry_run",
            ),
            ("tree", up, "", r#""journal":"/etc""#, "options.journal"),
            (
                "tree",
                up,
                "",
                r#""file_digests":"none""#,
                "options.file_digests",
            ),
            ("tree", to_ftp, "", r#""owner":true"#, "options.owner"),
            ("tree", to_ftp, "", r#""xattrs":true"#, "options.xattrs"),
            (
                "tree",
                to_ftp,
                "",
                r#""read_times":true"#,
                "options.read_times",
            ),
            (
                "tree",
                to_ftp,
                "",
                r#""hard_links":true"#,
                "options.hard_links",
            ),
            (
                "sync",
                up,
                "",
                r#""tree":{"journal":"/etc"}"#,
                "options.tree.journal",
            ),
            (
                "sync",
                to_ftp,
                "",
                r#""tree":{"owner":true}"#,
                "options.tree.owner",
            ),
            ("sync", up, "", r#""delete_max":5"#, "options.delete_max"),
            ("sync", up, "", r#""force":true"#, "options.force"),
            ("sync", between, "", r#""delta":true"#, "options.delta"),
        ] {
            let text = format!(
                r#"{{"version":1,"manifest":true,"transfers":[
                {{"{kind}":{{{more}{places},"options":{{{options}}}}}}}]}}"#
            );
            let submission: Submission =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let refused = submission.specs().map_err(|fault| fault.path);
            let refused = refused.err().unwrap_or_default();
            let expected = format!("transfers[0].{field}");
            assert_eq!(String::from_utf8_lossy(&refused), expected, "{text}");
        }
        let kept = format!(
            r#"{{"version":1,"transfers":[{{"tree":{{{between},"options":{{{}}}}}}}]}}"#,
            r#""owner":true,"xattrs":true,"read_times":true,"hard_links":true"#,
        );
        let submission: Result<Submission, _> = serde_json::from_str(&kept);
        assert!(submission.is_ok_and(|one| one.specs().is_ok()), "{kept}");
        let same =
            r#"{"version":1,"transfers":[{"tree":{"source":"xdfs://h/a","target":"xdfs://h/a"}}]}"#;
        let submission: Result<Submission, _> = serde_json::from_str(same);
        let refused = submission.ok().and_then(|one| one.specs().err());
        assert_eq!(
            refused.map(|fault| fault.path).as_deref(),
            Some(&b"transfers[0].target"[..])
        );
    }
}
