//! Names as game files spell them: weapons by number, players with colour codes.

/// Weapons of ET:Legacy's statistics in the order of the bits of a stats file's mask. The view
/// `weapon_comprehensive_stats` has the same list.
const WEAPONS: [&str; 28] = [
    "WS_KNIFE",
    "WS_KNIFE_KBAR",
    "WS_LUGER",
    "WS_COLT",
    "WS_MP40",
    "WS_THOMPSON",
    "WS_STEN",
    "WS_FG42",
    "WS_PANZERFAUST",
    "WS_BAZOOKA",
    "WS_FLAMETHROWER",
    "WS_GRENADE",
    "WS_MORTAR",
    "WS_MORTAR2",
    "WS_DYNAMITE",
    "WS_AIRSTRIKE",
    "WS_ARTILLERY",
    "WS_SATCHEL",
    "WS_GRENADELAUNCHER",
    "WS_LANDMINE",
    "WS_MG42",
    "WS_BROWNING",
    "WS_CARBINE",
    "WS_KAR98",
    "WS_GARAND",
    "WS_K43",
    "WS_MP34",
    "WS_SYRINGE",
];

/// Weapon name of a bit; an unknown bit keeps its number.
pub(super) fn weapon(bit: u32) -> String {
    let known = usize::try_from(bit).ok().and_then(|bit| WEAPONS.get(bit));
    known.map_or_else(|| bit.to_string(), |name| (*name).to_owned())
}

/// Player name without colour codes. A code is `^` and any one character but `^`, as in the game.
pub(super) fn without_colours(raw: &str) -> String {
    let mut plain = String::with_capacity(raw.len());
    let mut chars = raw.chars().peekable();
    while let Some(next) = chars.next() {
        if next == '^' && chars.next_if(|code| *code != '^').is_some() {
            continue;
        }
        plain.push(next);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_loses_its_colour_codes_and_nothing_else() {
        for (raw, expected) in [
            ("^7alpha", "alpha"),
            ("^1^xr^^7ed^", "r^ed^"),
            ("plain", "plain"),
            ("^", "^"),
            ("^1", ""),
            ("^öä", "ä"),
        ] {
            assert_eq!(without_colours(raw), expected, "{raw}");
        }
    }

    #[test]
    fn a_bit_without_a_weapon_stays_a_number() {
        assert_eq!((weapon(0), weapon(27)), ("WS_KNIFE".to_owned(), "WS_SYRINGE".to_owned()));
        assert_eq!(weapon(28), "28");
    }
}
