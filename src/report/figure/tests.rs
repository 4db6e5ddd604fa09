//! What holds of every picture.

/// Every tag is closed, in order, and nothing stands in the text that has to be escaped.
pub(in crate::report) fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').chain(tag.split('&')).skip(1) {
            let known = ["lt;", "gt;", "amp;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known));
            assert!(known || !piece.contains(&format!("&{entity}")), "{entity}");
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{open:?}");
    assert!(!svg.chars().any(|c| c.is_control() && c != '\n'));
}
