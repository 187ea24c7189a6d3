//! Licence expressions: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`, and the old
//! form `MIT/Apache-2.0`.

/// Whether a user who accepts only the licences in `allowed` may use what is under `expression`.
///
/// # Errors
/// The expression is malformed; a message says where.
pub(crate) fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let words = words(expression);
    let mut reader = Reader {
        words: &words,
        allowed,
    };
    let answer = reader.either()?;
    match reader.words.first() {
        None => Ok(answer),
        Some(word) => Err(format!("unexpected {word:?} in licence {expression:?}")),
    }
}

fn words(expression: &str) -> Vec<String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

struct Reader<'a> {
    words: &'a [String],
    allowed: &'a [String],
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.words.first().is_some_and(|w| w == word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut answer = self.both()?;
        while self.takes("OR") {
            answer |= self.both()?;
        }
        Ok(answer)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut answer = self.one()?;
        while self.takes("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.takes("(") {
            let answer = self.either()?;
            return if self.takes(")") {
                Ok(answer)
            } else {
                Err("a parenthesis is open".into())
            };
        }
        let name = match self.next() {
            Some(name) if !["OR", "AND", "WITH", ")"].contains(&name) => name,
            found => return Err(format!("a licence is missing before {found:?}")),
        };
        let name = if self.takes("WITH") {
            format!("{name} WITH {}", self.next().unwrap_or_default())
        } else {
            name.to_owned()
        };
        Ok(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(expression: &str) -> Result<bool, String> {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        is_allowed(expression, &allowed.map(str::to_owned))
    }

    #[test]
    fn one_side_of_or_is_enough() {
        for yes in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "GPL-3.0 OR Zlib OR MIT",
        ] {
            assert_eq!(asked(yes), Ok(true), "{yes}");
        }
        for no in ["GPL-3.0", "GPL-3.0 OR Zlib", "mit"] {
            assert_eq!(asked(no), Ok(false), "{no}");
        }
    }

    #[test]
    fn both_sides_of_and_are_needed() {
        assert_eq!(asked("(MIT OR GPL-3.0) AND Unicode-3.0"), Ok(true));
        assert_eq!(asked("MIT AND GPL-3.0"), Ok(false));
        // AND binds closer than OR.
        assert_eq!(asked("MIT OR GPL-3.0 AND Zlib"), Ok(true));
        assert_eq!(asked("(MIT OR GPL-3.0) AND Zlib"), Ok(false));
    }

    #[test]
    fn an_exception_is_part_of_its_licence() {
        assert_eq!(asked("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(asked("MIT WITH LLVM-exception"), Ok(false));
    }

    #[test]
    fn nonsense_is_an_error() {
        for bad in [
            "",
            "MIT OR",
            "OR MIT",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "()",
        ] {
            assert!(asked(bad).is_err(), "{bad}");
        }
    }
}
