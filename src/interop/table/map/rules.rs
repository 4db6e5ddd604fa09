//! Reads the rules of fields, metrics, joins and taints of a map, and checks each by its own text.

use super::super::slip::slip;
use super::{FieldRule, JoinRule, Kind, MetricRule, Origin, Placed, Reader, TaintRule, Template, unknown};
use crate::manifest::{Content, Key, Node, Standard, nearest, standard, without_table};
use crate::record::{MetricKind, Unit, known_metric, known_units};

/// A unit and its name.
type Named = (Unit, String);

impl Reader<'_> {
    pub(super) fn field(&mut self, (name, key): (String, &Key), node: &Node) -> Option<FieldRule> {
        if name == "seed" {
            let message =
                "a seed is not a field (write `seed = …` above [fields]; runs that differ in it are repetitions)";
            self.fault(key.span.start, message);
            return None;
        }
        let found = match standard(&name) {
            Standard::Field(field) => Some(field),
            Standard::Misspelled(meant) => {
                let own = name.rsplit('.').next().unwrap_or_default();
                let message =
                    format!("unknown field `{name}` (did you mean `{meant}`? `params.{own}` is a field of your own)");
                self.fault(key.span.start, message);
                None
            }
            Standard::Own { among_standard } => {
                let meant = without_table(&name).map(|meant| format!("did you mean `{meant}`?"));
                let meant = meant.or_else(|| among_standard.then(|| "it is stored as a field of your own".to_owned()));
                self.notes.extend(meant.map(|meant| format!("`{name}` is not a standard field ({meant})")));
                None
            }
        };
        let (mut template, mut kind, mut unit, mut to) = (None, None, None, None);
        let mut at = node.span.start;
        if let Content::Table(entries) = &node.content {
            for (key, node) in entries {
                match key.text.as_str() {
                    "value" => {
                        at = node.span.start;
                        template = self.template(key, node);
                    }
                    "type" => kind = self.kind(key, node),
                    "unit" => unit = self.unit(key, node),
                    "to" => to = self.unit(key, node),
                    other => {
                        let message =
                            unknown(other, &["value", "type", "unit", "to"], "a field has value, type, unit and to");
                        self.fault(key.span.start, message);
                    }
                }
            }
        } else {
            template = self.template(key, node);
        }
        let units = match (unit, to) {
            (None, None) => None,
            (Some((from, _)), Some((to, _))) if from.fits(to) => Some((from, to)),
            (Some(_), Some(_)) => {
                self.fault(node.span.start, "unit and to measure different things");
                None
            }
            _ => {
                self.fault(node.span.start, "a field is converted with both, unit and to");
                None
            }
        };
        let mut rule = FieldRule { name, template: template?, at, kind, units, standard: found };
        if let (Some(field), Template::Constant(value), None, None) = (found, &rule.template, kind, units)
            && let Err(message) = field.typed(value)
        {
            self.fault(at, format!("`{}` {message}", rule.name));
            // The rows would only repeat this fault.
            rule.standard = None;
        }
        Some(rule)
    }

    fn kind(&mut self, key: &Key, node: &Node) -> Option<Kind> {
        let word = self.word(key, node)?;
        let kind = Kind::named(&word);
        if kind.is_none() {
            self.fault(node.span.start, format!("type `{word}` is unknown (there are int, real, bool and text)"));
        }
        kind
    }

    fn unit(&mut self, key: &Key, node: &Node) -> Option<Named> {
        let Content::Text(name) = &node.content else {
            self.fault(node.span.start, format!("`{}` must be text", key.text));
            return None;
        };
        let unit = Unit::named(name);
        if unit.is_none() {
            self.fault(node.span.start, format!("unit `{name}` is unknown (known ones: {})", known_units()));
        }
        Some((unit?, name.clone()))
    }

    fn metric_kind(&mut self, key: &Key, node: &Node) -> Option<MetricKind> {
        let word = self.word(key, node)?;
        let kind = MetricKind::named(&word);
        if kind.is_none() {
            let names = MetricKind::ALL.map(MetricKind::name);
            let meant = nearest(&word, names).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
            self.fault(node.span.start, format!("kind is `{word}` (it must be {}{meant})", names.join(" or ")));
        }
        kind
    }

    pub(super) fn metric(&mut self, (name, key): (String, &Key), node: &Node) -> Option<MetricRule> {
        let (mut from, mut unit, mut to, mut kind) = (None, None, None, None);
        let (mut at, mut is_own, mut is_faulty) = (node.span.start, false, false);
        if let Content::Table(entries) = &node.content {
            for (key, node) in entries {
                match key.text.as_str() {
                    "value" => {
                        at = node.span.start;
                        from = self.template(key, node).map(Origin::Cell);
                    }
                    "formula" => {
                        at = node.span.start;
                        from = self.word(key, node).map(Origin::Formula);
                    }
                    "unit" | "to" => {
                        let found = self.unit(key, node);
                        is_faulty |= found.is_none();
                        if key.text == "unit" {
                            unit = found;
                        } else {
                            to = found;
                        }
                    }
                    "kind" => {
                        is_own = true;
                        kind = self.metric_kind(key, node);
                    }
                    other => {
                        let known = ["value", "formula", "unit", "to", "kind"];
                        let listed = "a metric has value or formula, unit, to and kind";
                        self.fault(key.span.start, unknown(other, &known, listed));
                    }
                }
            }
        } else {
            from = self.template(key, node).map(Origin::Cell);
        }
        if let Some(Origin::Cell(template)) = &from
            && !template.is_one_value()
        {
            self.fault(at, format!("`{name}` must be one column, as \"{{column}}\", or a number"));
        }
        if let Some(meant) = slip(&name).filter(|_| !is_own) {
            let message = format!(
                "unknown metric `{name}` (did you mean `{meant}`? kind = \"measured\" or \"outcome\" makes it a metric of your own)"
            );
            self.fault(key.span.start, message);
        }
        if is_faulty {
            return None;
        }
        let (unit, units) = self.kept_unit(&name, node.span.start, unit, to)?;
        Some(MetricRule { name, from: from?, at, unit, units, kind })
    }

    /// Returns the unit in which a metric is stored, and the conversion to it.
    fn kept_unit(
        &mut self,
        name: &str,
        at: usize,
        unit: Option<Named>,
        to: Option<Named>,
    ) -> Option<(String, Option<(Unit, Unit)>)> {
        let known = known_metric(name).and_then(|known| Some((Unit::named(known.unit)?, known.unit.to_owned())));
        if let (None, Some((_, own))) = (&unit, &known)
            && !own.is_empty()
        {
            self.fault(
                at,
                format!("`{name}` has no unit (add the unit that it is given in, such as unit = \"{own}\")"),
            );
            return None;
        }
        let given = unit.clone().or_else(|| known.clone());
        if let (Some((to, said)), Some((own, kept))) = (&to, &known)
            && to != own
        {
            self.fault(at, format!("`{name}` is kept in `{kept}`, not in `{said}` (leave out `to`)"));
            return None;
        }
        let kept = known.or(to).or(unit);
        match (given, kept) {
            (Some((from, _)), Some((to, name))) if from.fits(to) => Some((name, Some((from, to)))),
            (Some((_, from)), Some((_, to))) => {
                self.fault(at, format!("`{name}` is kept in `{to}`, but is given in `{from}`"));
                None
            }
            _ => Some((String::new(), None)),
        }
    }

    pub(super) fn join(&mut self, node: &Node) -> Option<JoinRule> {
        let Content::Table(entries) = &node.content else {
            self.fault(node.span.start, "`join` must be a table, [join]");
            return None;
        };
        let (mut file, mut on, mut condition) = (None, Vec::new(), None);
        for (key, node) in entries {
            match key.text.as_str() {
                "file" => file = self.word(key, node),
                "where" => condition = self.condition(key, node),
                "on" => match &node.content {
                    Content::List(items) => {
                        let column = |item| Some(Placed { value: self.word(key, item)?, at: item.span.start });
                        on = items.iter().filter_map(column).collect();
                    }
                    _ => self.fault(node.span.start, "`on` must be a list of columns"),
                },
                other => {
                    self.fault(key.span.start, unknown(other, &["file", "on", "where"], "join has file, on and where"));
                }
            }
        }
        if file.is_none() || on.is_empty() {
            self.fault(node.span.start, "join needs a file and the columns that both have: on = [\"column\"]");
        }
        Some(JoinRule { file: file?, on, condition })
    }

    pub(super) fn taints(&mut self, node: &Node) -> Vec<TaintRule> {
        let Content::List(items) = &node.content else {
            self.fault(node.span.start, "`taint` must be a list of tables, [[taint]]");
            return Vec::new();
        };
        let mut rules = Vec::new();
        for item in items {
            let (mut when, mut reason) = (None, None);
            if let Content::Table(entries) = &item.content {
                for (key, node) in entries {
                    match key.text.as_str() {
                        "when" => when = self.condition(key, node),
                        "reason" => reason = self.word(key, node),
                        other => {
                            self.fault(
                                key.span.start,
                                unknown(other, &["when", "reason"], "a taint has when and reason"),
                            );
                        }
                    }
                }
            }
            match (when, reason) {
                (Some(when), Some(reason)) => rules.push(TaintRule { when, reason }),
                _ => self.fault(item.span.start, "a taint needs both, when and reason"),
            }
        }
        rules
    }
}
