//! Lists of mirrors: the places that have a file. As text, a URL on each line, or in Metalink 4
//! (RFC 5854).
//!
//! Lists come from elsewhere and aren't believed: their size, depth and number of URLs are bounded,
//! names that lead out of a directory are refused, and so is a document type, which alone could
//! define entities. No list is fetched, and none leads to another one.

use std::io::Read;

use xdfs_proto::{ChecksumValue, Code, Fault};

mod metalink;

/// Largest list in bytes: that of a terabyte with digests of its pieces.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Most URLs of a list.
const URLS_MAX: usize = 10_000;
const OPERATION: &str = "read the list of mirrors";

/// A file that a list names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirroredFile {
    /// Its name; `None` if the list has none.
    pub name: Option<String>,
    /// Its length in bytes, if the list has it.
    pub length: Option<u64>,
    /// Its digest, if the list has one that can't be forged.
    pub digest: Option<ChecksumValue>,
    /// The URLs, the preferred first. They may be of any scheme.
    pub urls: Vec<String>,
}

/// Reads a list of mirrors: Metalink if it begins as XML does, otherwise text, which names a single
/// file. Faults name the list by `list_name`, and show nothing of it: URLs may have passwords.
///
/// # Errors
/// It can't be read, is too large, or has a mistake.
pub fn read_mirrors(list: impl Read, list_name: &[u8]) -> Result<Vec<MirroredFile>, Fault> {
    let bad = |cause: String| Fault::new(Code::InvalidArgument, OPERATION, cause).path(list_name);
    let mut bytes = Vec::new();
    let read = list.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Fault::from_io(OPERATION, list_name, &error))?;
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(bad(format!(
            "it has more than {} MiB",
            LIST_BYTES_MAX >> 20
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8".into()))?;
    let text = text.trim_start_matches('\u{feff}');
    let files = match text.trim_start().starts_with('<') {
        true => metalink::files(text).map_err(|cause| {
            bad(cause).hint("lists in XML are Metalink 4 (RFC 5854), a .meta4 file")
        })?,
        false => vec![plain(text).map_err(|cause| {
            let hint = "write a URL on each line, and before them, if known: sha256 HEX, blake3 \
                        HEX, size BYTES";
            bad(cause).hint(hint)
        })?],
    };
    let urls = files.iter().map(|file| file.urls.len()).sum::<usize>();
    match urls {
        0 => Err(bad("it names no URLs".into())),
        1..=URLS_MAX => Ok(files),
        _ => Err(bad(format!("it has more than {URLS_MAX} URLs"))),
    }
}

/// The file of a list as text.
fn plain(text: &str) -> Result<MirroredFile, String> {
    let mut file = MirroredFile::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at_line = |cause: &str| format!("line {number}: {cause}");
        let is_url = line.contains("://") && !line.contains(char::is_whitespace);
        let known = match line.split_once(char::is_whitespace) {
            _ if is_url => {
                file.urls.push(line.to_owned());
                continue;
            }
            Some(("size", size)) => set(&mut file.length, length(size.trim())),
            Some((kind @ ("sha256" | "blake3"), hex)) => {
                set(&mut file.digest, digest(kind, hex.trim()))
            }
            _ => Err("it is neither a URL nor a size or a digest".to_owned()),
        };
        known.map_err(|cause| at_line(&cause))?;
    }
    Ok(file)
}

/// Sets what a list may say once, or again in the same way.
fn set<T: PartialEq>(known: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    let value = value?;
    match known {
        Some(before) if *before != value => Err("it contradicts what was said before".into()),
        _ => {
            *known = Some(value);
            Ok(())
        }
    }
}

/// A length in bytes.
fn length(text: &str) -> Result<u64, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| "the size is not a number of bytes".to_owned())
}

/// A digest in hex.
fn digest(kind: &str, hex: &str) -> Result<ChecksumValue, String> {
    let bytes: Option<Vec<u8>> = match hex.is_ascii() {
        true => (hex.as_bytes().chunks(2))
            .map(|pair| {
                let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
                u8::try_from(digit(0)? * 16 + digit(1)?).ok()
            })
            .collect(),
        false => None,
    };
    let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| format!("the {kind} digest does not have 64 hex digits"))?;
    Ok(match kind {
        "blake3" => ChecksumValue::Blake3(bytes),
        _ => ChecksumValue::Sha256(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<MirroredFile>, Fault> {
        read_mirrors(text.as_bytes(), b"list")
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let fault = read(text).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
        assert!(fault.cause.contains(words), "{fault}");
    }

    const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

    #[test]
    fn a_text_has_a_url_on_each_line() {
        let text = format!(
            "\u{feff}# mirrors\r\n\nsize 12\nsha256  {HEX}\r\n xdfs://a/f \nhttp://b/f,g\nsize 12\n"
        );
        let files = read(&text).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].urls, ["xdfs://a/f", "http://b/f,g"]);
        assert_eq!(files[0].length, Some(12));
        assert!(matches!(files[0].digest, Some(ChecksumValue::Sha256(bytes)) if bytes[1] == 0x11));
    }

    #[test]
    fn mistakes_in_a_text_are_named_by_their_lines() {
        refused("", "no URLs");
        refused("# nothing\nsize 1\n", "no URLs");
        refused("xdfs://a/f\nlist\n", "line 2: it is neither");
        refused("xdfs://a/f xdfs://b/f\n", "line 1: it is neither");
        for size in ["-1", "+1", "1k", "", "99999999999999999999"] {
            refused(&format!("size {size}\nxdfs://a/f"), "line 1");
        }
        refused("size 1\nsize 2\nxdfs://a/f", "line 2: it contradicts");
        for hex in [
            "00",
            &HEX[1..],
            &format!("{HEX}00"),
            &HEX.replace('a', "g"),
            "\u{e9}",
        ] {
            refused(&format!("sha256 {hex}\nxdfs://a/f"), "64 hex digits");
        }
        refused(
            &format!("blake3 {HEX}\nsha256 {HEX}\nxdfs://a/f"),
            "line 2: it contradicts",
        );
    }

    #[test]
    fn a_list_is_bounded() {
        let many = "xdfs://a/f\n".repeat(URLS_MAX);
        assert_eq!(read(&many).unwrap()[0].urls.len(), URLS_MAX);
        refused(&format!("{many}xdfs://a/f\n"), "more than 10000 URLs");
        let fault = read_mirrors(std::io::repeat(b'#'), b"list").unwrap_err();
        assert!(fault.cause.contains("more than 16 MiB"), "{fault}");
        let fault = read_mirrors(&b"xdfs://\xff"[..], b"list").unwrap_err();
        assert!(fault.cause.contains("UTF-8"), "{fault}");
    }

    #[test]
    fn nothing_of_a_list_is_shown() {
        let fault = read("ftp://u:secret@h/f more\n").unwrap_err();
        assert!(!format!("{fault:?}").contains("secret"), "{fault:?}");
    }
}
