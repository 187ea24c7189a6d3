//! Tables and sizes in the format of Unix commands.

/// Bytes in powers of 1024 as in `ls -h`: `0`, `999`, `1.5K`, `23M`; rounded up.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1_u128 << 10;
    for letter in ["K", "M", "G", "T", "P", "E"] {
        let bytes = u128::from(bytes);
        let tenths = (bytes * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(unit);
        if whole < 1024 || letter == "E" {
            return format!("{whole}{letter}");
        }
        unit <<= 10;
    }
    String::new()
}

/// Bytes in units of 1024, rounded up, or formatted by [`human`].
pub(crate) fn space(bytes: u64, is_human: bool) -> String {
    if is_human {
        human(bytes)
    } else {
        bytes.div_ceil(1024).to_string()
    }
}

/// Formats rows as lines with aligned columns: to the left for the cells of columns that are
/// `is_left`, to the right for others. The last column isn't padded.
pub(crate) fn align(rows: &[Vec<String>], is_left: impl Fn(usize, &str) -> bool) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column > 0 {
                    line.push(' ');
                }
                let width = widths[column];
                let last = column + 1 == columns;
                line += &match is_left(column, cell) {
                    true if last => cell.clone(),
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                };
            }
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (1_048_575, "1.0M"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (23 << 20, "23M"),
            (3 << 29, "1.5G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
        assert_eq!(
            (space(1, false), space(2048, true)),
            ("1".into(), "2.0K".into())
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "1", "x"], ["bcd", "200", "yy"]].map(|row| row.map(String::from).into());
        assert_eq!(
            align(&rows, |column, _| column != 1),
            ["a     1 x", "bcd 200 yy"]
        );
        assert_eq!(align(&rows, |_, _| false), ["  a   1  x", "bcd 200 yy"]);
    }
}
