//! Metalink 4 (RFC 5854): names, sizes, digests and URLs of files. Everything else in it is left
//! out, digests of pieces too.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use super::{MirroredFile, URLS_MAX, digest, length, set};

const NAMESPACE: &str = "urn:ietf:params:xml:ns:metalink";
/// Deepest nesting of elements: four are in use.
const DEPTH_MAX: usize = 16;
/// Longest text of an element that is used, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The priority of a URL without one: the last.
const PRIORITY_LAST: u32 = 999_999;

/// An open element.
struct Element {
    name: String,
    /// `type` of a hash.
    kind: String,
    priority: u32,
    text: String,
}

/// A file that is being read.
#[derive(Default)]
struct Reading {
    file: MirroredFile,
    /// URLs with their priorities.
    urls: Vec<(u32, String)>,
}

/// The files of a document.
///
/// # Errors
/// The mistake, as the cause of a fault.
pub(super) fn files(text: &str) -> Result<Vec<MirroredFile>, String> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut reading: Option<Reading> = None;
    let mut files = Vec::new();
    let (mut has_root, mut urls) = (false, 0);
    loop {
        let event = reader.read_event();
        let at = reader.buffer_position();
        let malformed = |cause: &dyn std::fmt::Display| format!("at byte {at}: {cause}");
        match event.map_err(|error| malformed(&error))? {
            Event::Start(tag) => {
                if open.len() >= DEPTH_MAX {
                    return Err(format!("elements are nested more than {DEPTH_MAX} deep"));
                }
                let element = element(&tag).map_err(|cause| malformed(&cause))?;
                if open.is_empty() {
                    check_root(&tag, has_root)?;
                    has_root = true;
                }
                if open.len() == 1 && element.name == "file" {
                    reading = Some(Reading {
                        file: MirroredFile {
                            name: Some(name_of(&tag)?),
                            ..MirroredFile::default()
                        },
                        urls: Vec::new(),
                    });
                }
                open.push(element);
            }
            Event::Empty(tag) if open.is_empty() => {
                check_root(&tag, has_root)?;
                has_root = true;
            }
            Event::End(_) => {
                let Some(element) = open.pop() else {
                    return Err(malformed(&"an element ends that has not begun"));
                };
                match (open.len(), &mut reading) {
                    (1, Some(_)) => files.extend(reading.take().map(Reading::finish)),
                    (2, Some(reading)) => {
                        urls += usize::from(element.name == "url");
                        if urls > URLS_MAX {
                            return Err(format!("it has more than {URLS_MAX} URLs"));
                        }
                        reading.take(element)?;
                    }
                    _ => {}
                }
            }
            Event::Text(text) => add(&mut open, &text.xml10_content())?,
            Event::CData(text) => add(&mut open, &text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                let character = match &*name {
                    "amp" => Some('&'),
                    "lt" => Some('<'),
                    "gt" => Some('>'),
                    "quot" => Some('"'),
                    "apos" => Some('\''),
                    _ => reference.resolve_char_ref().ok().flatten(),
                };
                let character = character.ok_or_else(|| malformed(&"an entity isn't defined"))?;
                add(&mut open, character.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return Err("it has a document type, which is refused".into()),
            Event::Eof if open.is_empty() && has_root => return Ok(files),
            Event::Eof => return Err("it ends within an element".into()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

impl Reading {
    /// Takes an element of a file.
    fn take(&mut self, element: Element) -> Result<(), String> {
        let text = element.text.trim();
        match (&*element.name, &*element.kind) {
            ("size", _) => set(&mut self.file.length, length(text)),
            ("hash", "sha-256") => set(&mut self.file.digest, digest("sha256", text)),
            ("url", _) => {
                self.urls.push((element.priority, text.to_owned()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self) -> MirroredFile {
        // Stable: of equal priority in their order.
        self.urls.sort_by_key(|(priority, _)| *priority);
        MirroredFile {
            urls: self.urls.into_iter().map(|(_, url)| url).collect(),
            ..self.file
        }
    }
}

fn element(tag: &BytesStart<'_>) -> Result<Element, String> {
    let kind = attribute(tag, "type")?.unwrap_or_default();
    let priority = attribute(tag, "priority")?;
    let priority = priority.map_or(Some(PRIORITY_LAST), |text| text.trim().parse().ok());
    Ok(Element {
        name: tag.local_name().as_ref().to_owned(),
        kind,
        priority: priority.ok_or("a priority is not a number")?,
        text: String::new(),
    })
}

/// The value of an attribute.
fn attribute(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        if attribute.key.as_ref() == name {
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| error.to_string())?;
            return Ok(Some(value.into_owned()));
        }
    }
    Ok(None)
}

fn check_root(tag: &BytesStart<'_>, has_root: bool) -> Result<(), String> {
    if has_root {
        return Err("it has more than one root element".into());
    }
    let space = attribute(tag, "xmlns")?;
    match (tag.name().as_ref(), space.as_deref()) {
        ("metalink", Some(NAMESPACE)) => Ok(()),
        ("metalink", _) => Err("it is of another version than Metalink 4".into()),
        _ => Err("it is XML, and no Metalink".into()),
    }
}

/// The name of a file, which has to stay in the directory of the target.
fn name_of(tag: &BytesStart<'_>) -> Result<String, String> {
    let name = attribute(tag, "name")?.ok_or("a file has no name")?;
    let is_odd = |c: char| matches!(c, '/' | '\\' | ':') || c.is_control();
    if name.is_empty() || name == "." || name == ".." || name.contains(is_odd) {
        let name = name.escape_default();
        return Err(format!("'{name}' is not the name of a file in a directory"));
    }
    Ok(name)
}

/// Adds to the text of the innermost element.
fn add(open: &mut [Element], text: &str) -> Result<(), String> {
    match open.last_mut() {
        Some(element) => {
            if element.text.len() + text.len() > TEXT_BYTES_MAX {
                return Err(format!(
                    "an element has more than {TEXT_BYTES_MAX} bytes of text"
                ));
            }
            element.text.push_str(text);
            Ok(())
        }
        None if text.trim().is_empty() => Ok(()),
        None => Err("text is outside of the root element".into()),
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::ChecksumValue;

    use super::*;

    const HEX: &str = "f0ad929cd259957e160ea442eb80986b5f01af0ceb0f3f6d2f7d1a1c2d2d3d4d";

    fn document(inner: &str) -> String {
        format!("<?xml version=\"1.0\"?>\n<metalink xmlns=\"{NAMESPACE}\">{inner}</metalink>\n")
    }

    fn named(name: &str) -> Result<Vec<MirroredFile>, String> {
        files(&document(&format!(
            "<file name=\"{name}\"><url>xdfs://a/f</url></file>"
        )))
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let cause = files(text).unwrap_err();
        assert!(cause.contains(words), "{cause}");
    }

    /// The example of the standard, in section 1.1, with other URLs.
    #[test]
    fn the_example_of_the_standard() {
        let text = document(&format!(
            "<published>2009-05-15T12:23:23Z</published>
             <file name=\"example.ext\"><size>14471447</size>
             <generator>test &amp; more</generator>
             <hash type=\"md5\">83b1a04f18d6782cfe0407edadac377f</hash>
             <hash type=\"sha-256\">{HEX}</hash>
             <pieces length=\"262144\" type=\"sha-256\"><hash>00</hash><hash>11</hash></pieces>
             <url location=\"de\" priority=\"2\">ftp://ftp.example.com/a&amp;b</url>
             <url priority=\"1\"> xdfs://example.com/<![CDATA[a&b]]> </url>
             <metaurl mediatype=\"torrent\">http://example.com/x.torrent</metaurl>
             <url>http://example.com/&#x41;</url></file>
             <file name=\"other\"><url>ssh://h/other</url></file>"
        ));
        let files = files(&text).unwrap();
        let first = &files[0];
        assert_eq!(first.name.as_deref(), Some("example.ext"));
        assert_eq!(first.length, Some(14_471_447));
        assert!(matches!(first.digest, Some(ChecksumValue::Sha256(bytes)) if bytes[0] == 0xf0));
        assert_eq!(
            first.urls,
            [
                "xdfs://example.com/a&b",
                "ftp://ftp.example.com/a&b",
                "http://example.com/A"
            ]
        );
        assert_eq!(files[1].urls, ["ssh://h/other"]);
        assert_eq!((files[1].length, files[1].digest), (None, None));
    }

    #[test]
    fn names_stay_in_the_directory() {
        for good in ["f", "a b", "...", "..a", "&lt;"] {
            assert!(named(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../f",
            "a/../../f",
            "a/f",
            "..\\f",
            "C:f",
            "a&#0;",
            "a&#10;b",
            "&#46;&#46;/f",
            "&#x2e;&#x2e;",
        ] {
            assert!(named(bad).is_err(), "{bad}");
        }
        refused(
            &document("<file><url>xdfs://a/f</url></file>"),
            "has no name",
        );
    }

    #[test]
    fn entities_are_not_expanded() {
        let bomb = "<!DOCTYPE m [<!ENTITY a \"xdfs://a/\"><!ENTITY b \"&a;&a;\">]>";
        let inner = "<file name=\"f\"><url>&b;</url></file>";
        refused(&format!("{bomb}{}", document(inner)), "document type");
        let external = "<!DOCTYPE m SYSTEM \"file:///etc/passwd\">";
        refused(&format!("{external}{}", document(inner)), "document type");
        refused(&document(inner), "an entity isn't defined");
        assert!(named("&b;").is_err());
    }

    #[test]
    fn malformed_documents_are_refused() {
        refused("<", "");
        refused("<html></html>", "no Metalink");
        refused("<metalink version=\"3.0\"></metalink>", "another version");
        refused(
            "<metalink xmlns=\"http://www.metalinker.org/\"/>",
            "another version",
        );
        let whole = document("<file name=\"f\"><size>1</size><url>xdfs://a/f</url></file>");
        assert_eq!(files(&whole).unwrap().len(), 1);
        // Cut at any place.
        for end in 1..whole.trim_end().len() {
            assert!(files(&whole[..end]).is_err(), "{end}");
        }
        refused(&format!("{whole}{whole}"), "");
        refused(&format!("{whole}text"), "outside of the root");
        refused(&document("<file name=\"f\"><url>a</file></url>"), "");
        refused(
            &document("<file name=\"f\" name=\"g\"/>x<file name=\"f\" name=\"g\"></file>"),
            "",
        );
        refused(
            &document("<file name=\"f\"><size>1</size><size>2</size></file>"),
            "contradicts",
        );
        refused(
            &document("<file name=\"f\"><hash type=\"sha-256\">12</hash></file>"),
            "64 hex",
        );
        refused(
            &document("<file name=\"f\"><url priority=\"-\">x</url></file>"),
            "priority",
        );
    }

    #[test]
    fn huge_documents_are_refused() {
        let deep = "<a>".repeat(1 << 20);
        refused(&document(&deep), "nested more than");
        let urls = "<url>xdfs://a/f</url>".repeat(URLS_MAX + 1);
        refused(
            &document(&format!("<file name=\"f\">{urls}</file>")),
            "more than 10000 URLs",
        );
        let text = "x".repeat(TEXT_BYTES_MAX + 1);
        refused(
            &document(&format!("<file name=\"f\"><url>{text}</url></file>")),
            "bytes of text",
        );
    }
}
