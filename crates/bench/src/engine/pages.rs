//! Share of memory in huge pages, from `/proc/self/smaps`.

use std::ops::Range;

/// Returns the share of these slices in huge pages; `None` for no slices, or where the system does not say.
pub fn huge_share<T>(slices: &[Range<*const T>]) -> Option<f64> {
    share(
        &std::fs::read_to_string("/proc/self/smaps").ok()?,
        &slices.iter().map(addresses).collect::<Vec<_>>(),
    )
}

fn addresses<T>(slice: &Range<*const T>) -> Range<usize> {
    slice.start.addr()..slice.end.addr()
}

/// Parses the share from the text of `smaps`: a line `begin-end ...` for each mapping, followed by its properties, among them
/// `AnonHugePages: N kB`. Huge pages of a mapping are attributed to the slices first.
fn share(smaps: &str, slices: &[Range<usize>]) -> Option<f64> {
    let (mut bytes, mut huge) = (0, 0);
    let mut within = 0;
    for line in smaps.lines() {
        if let Some(mapping) = mapping(line) {
            let overlap = |slice: &Range<usize>| {
                slice.end.min(mapping.end).saturating_sub(slice.start.max(mapping.start))
            };
            within = slices.iter().map(overlap).sum::<usize>();
            bytes += within;
        } else if let Some(size) = line.strip_prefix("AnonHugePages:") {
            let kilobytes: usize = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
            huge += within.min(kilobytes << 10);
        }
    }
    (bytes > 0).then(|| huge as f64 / bytes as f64)
}

/// Returns the addresses of a mapping if the line begins one.
fn mapping(line: &str) -> Option<Range<usize>> {
    let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(usize::from_str_radix(begin, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_slices_alone() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0 \nRss: 4 kB\nAnonHugePages:         0 kB\n\
            400000-800000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\nVmFlags: rd wr hg\n";
        let share_of = |begin, end| share(smaps, std::slice::from_ref(&(begin..end)));
        assert_eq!(share_of(0x40_0000, 0x80_0000), Some(0.5));
        assert_eq!(share_of(0x40_0000, 0x60_0000), Some(1.0));
        assert_eq!(share_of(0x1000, 0x2000), Some(0.0));
        assert_eq!(share(smaps, &[]), None);
    }
}
