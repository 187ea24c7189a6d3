//! Expands patterns to the paths that match.

use xdfs::{Code, Fault, NamePattern};

/// Most matches of a pattern.
const NAMES_MAX: usize = 100_000;

/// Directory lookups on one side. Paths are as written.
pub(crate) trait Names {
    /// The names in a directory.
    ///
    /// # Errors
    /// It can't be listed.
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault>;

    /// Looks for the path.
    ///
    /// # Errors
    /// It isn't there, or can't be looked for.
    fn look(&mut self, path: &[u8]) -> Result<(), Fault>;

    /// Whether the path is a directory, or a link to one.
    fn is_directory(&mut self, path: &[u8]) -> bool;
}

/// Expands a pattern to at least one path, in sorted order. Names that start with a dot match only
/// patterns that do so too.
///
/// # Errors
/// There is no match, or too many, or a named directory can't be listed.
pub(crate) fn expand(text: &[u8], side: &mut impl Names) -> Result<Vec<Vec<u8>>, Fault> {
    let fault = |code, cause: &str| Fault::new(code, "find", cause).path(text);
    let mut found: Vec<Vec<u8>> = vec![Vec::new()];
    let mut matched = false;
    for (at, part) in text.split(|&b| b == b'/').enumerate() {
        if at > 0 {
            found.iter_mut().for_each(|path| path.push(b'/'));
        }
        if !NamePattern::is_wildcard(part) {
            let part = unescaped(part);
            found.iter_mut().for_each(|path| path.extend(&part));
            if matched {
                found.retain(|path| match part.is_empty() {
                    true => side.is_directory(path),
                    false => side.look(path).is_ok(),
                });
            }
            continue;
        }
        let pattern = NamePattern::new(part);
        let mut longer = Vec::new();
        for path in found {
            let directory = if path.is_empty() { b"." } else { &path[..] };
            let names = match side.names(directory) {
                Ok(names) => names,
                // An earlier match may be anything.
                Err(_) if matched => continue,
                Err(fault) => return Err(fault),
            };
            for name in names {
                if pattern.stands_for(&name) {
                    longer.push([path.as_slice(), &name].concat());
                }
            }
            if longer.len() > NAMES_MAX {
                return Err(fault(Code::InvalidArgument, "too many names match"));
            }
        }
        longer.sort();
        found = longer;
        matched = true;
    }
    if found.is_empty() {
        return Err(
            fault(Code::NotFound, "no name matches").hint("quote it if it is a literal name")
        );
    }
    Ok(found)
}

fn unescaped(part: &[u8]) -> Vec<u8> {
    let mut bytes = part.iter();
    let mut out = Vec::with_capacity(part.len());
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => bytes.next().copied().unwrap_or(byte),
            byte => byte,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Tree(BTreeMap<&'static str, Vec<&'static str>>);

    impl Names for Tree {
        fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
            let directory = std::str::from_utf8(directory).unwrap();
            let names = self.0.get(directory.trim_end_matches('/'));
            let names = names.ok_or_else(|| Fault::new(Code::NotDirectory, "list", "none"))?;
            Ok(names.iter().map(|name| name.as_bytes().to_vec()).collect())
        }

        fn look(&mut self, path: &[u8]) -> Result<(), Fault> {
            let is_there = path == b"d/y";
            is_there
                .then_some(())
                .ok_or_else(|| Fault::new(Code::NotFound, "find", "none"))
        }

        fn is_directory(&mut self, path: &[u8]) -> bool {
            self.names(path).is_ok()
        }
    }

    #[test]
    fn patterns_stand_for_names() {
        let mut tree = Tree(BTreeMap::from([
            (".", vec!["b.x", "a.x", ".h.x", "d", "e", "*"]),
            ("d", vec!["y", "z"]),
            ("e", vec!["z"]),
            ("", vec!["r"]),
        ]));
        let mut all = |pattern: &str| {
            let found = expand(pattern.as_bytes(), &mut tree)?;
            let found = found
                .into_iter()
                .map(|path| String::from_utf8(path).unwrap());
            Ok::<_, Fault>(found.collect::<Vec<_>>())
        };
        assert_eq!(all("*.x").unwrap(), ["a.x", "b.x"]);
        assert_eq!(all(".*").unwrap(), [".h.x"]);
        assert_eq!(all("\\*").unwrap(), ["*"]);
        assert_eq!(all("[ab].?").unwrap(), ["a.x", "b.x"]);
        assert_eq!(all("*/z").unwrap_err().code, Code::NotFound);
        assert_eq!(all("*/y").unwrap(), ["d/y"]);
        assert_eq!(all("*/*").unwrap(), ["d/y", "d/z", "e/z"]);
        assert_eq!(all("*/").unwrap(), ["d/", "e/"]);
        assert_eq!(all("d/*").unwrap(), ["d/y", "d/z"]);
        assert_eq!(all("/*").unwrap(), ["/r"]);
        assert_eq!(all("?.y").unwrap_err().code, Code::NotFound);
        assert_eq!(all("gone/*").unwrap_err().code, Code::NotDirectory);
    }
}
