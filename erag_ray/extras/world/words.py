"""Vocabulary of the world: pieces of names, occupations and products. All invented or common.

`names` samples the combinations, so that a reader that has seen every piece still has to find the entity.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("/") for pair in _words(text))


# first name -> the form that friends (and some pages and questions) use
WOMEN = _pairs(
    """
    Anna/Annie Beatrice/Bea Caroline/Carrie Dorothea/Thea Eleanor/Nell Frances/Fanny Gabriele/Gabi
    Helena/Leni Isabel/Izzy Johanna/Hanne Katharina/Kat Louisa/Lou Margaret/Meg Natalia/Tasha Olivia/Livvy
    Patricia/Pat Rebecca/Becky Susanna/Sanna Theresa/Tess Veronica/Vera Agatha/Aggie Barbara/Babs
    Cecilia/Cissy Deborah/Debbie Elisabeth/Lisbet Florence/Flo Georgina/Gina Henrietta/Etta Irene/Rena
    Josephine/Josie Leonora/Nora Matilda/Tilda Nicoletta/Nica Ottilie/Tilly Philippa/Pippa Rosalind/Roz
    Sabine/Bine Ursula/Ulla Victoria/Vicky Wilhelmina/Mina
    """
)
MEN = _pairs(
    """
    Albert/Bertie Benjamin/Ben Christopher/Kit Daniel/Danny Edward/Ned Frederick/Fred Gregory/Greg
    Heinrich/Heinz Isidor/Izo Jonathan/Jon Konrad/Kurt Leopold/Poldi Matthias/Matz Nathaniel/Nat
    Oliver/Ollie Peregrine/Perry Raphael/Rafe Sebastian/Basti Theodore/Ted Valentin/Val Alexander/Sander
    Bartholomew/Bart Clement/Clem Dominic/Nick Ernest/Ernie Ferdinand/Ferdy Gilbert/Gil Humphrey/Humph
    Ignatius/Iggy Joachim/Achim Laurence/Larry Maximilian/Max Nikolaus/Klaus Oswald/Ossie Philemon/Phil
    Reginald/Reggie Stanislav/Stas Tobias/Toby Vincent/Vince Wolfgang/Wolf
    """
)
SURNAME_STARTS = _words(
    """
    Bren Kel Mar Tor Hal Wes Lin Gar Pel Dor Ost Ros Win Stei Bach Feld Gruen Har Kol Len Mor Nor Pras Quin
    Rei Sand Tal Ul Vos Wal Zim Ash Bor Cal Dun Er Fal Gol Hol Im Jor Kran Lam Mel Nar Ol Per Rud Sel Tren
    Uhl Ver Wol Yar Zel Bel Cor Dal
    """
)
SURNAME_MIDDLES = _words("a e i o u ei au an en in on ar er or al el il ol ut")
SURNAME_ENDS = _words(
    """
    ner mann berg ler ton well ford sen rick mond stad gard low ham win shaw lock wood croft field by worth
    man ski vik dorf bach rup stein
    """
)
TOWN_STARTS = _words(
    """
    Alt Birk Cran Dorn Elm Farn Glas Hirsch Ilm Jett Kirk Lauf Moos Neu Ober Pfal Ravens Salz Thorn Ufer
    Wald Zell Amber Black Cold Drift Ever Fox Grim Hazel Iron Kings Lark Mill North Oak Pine Rook Stone Tarn
    West
    """
)
TOWN_ENDS = _words(
    """
    ach burg dale ford hausen heim hurst kirch leigh mere ney port stedt ton wick wald haven mouth bridge
    field
    """
)
RIVER_ENDS = _words("a e ach el en er in itz ock une ava ona")
REGION_ENDS = _words("land mark shire wald gau ria ovia enia")
# occupation -> another word for the same
OCCUPATIONS = _pairs(
    """
    botanist/plant-scientist astronomer/stargazer surgeon/operating-doctor painter/canvas-artist
    baker/bread-maker lawyer/attorney teacher/instructor cobbler/shoemaker mason/stonecutter sailor/seaman
    pilot/aviator chemist/substance-researcher physicist/matter-researcher librarian/archivist
    poet/verse-writer singer/vocalist carpenter/woodworker blacksmith/ironworker farmer/grower
    fisherman/angler
    journalist/reporter economist/market-scholar geologist/rock-scientist dentist/tooth-doctor
    midwife/birth-helper gardener/hedge-trimmer cook/kitchen-chef tailor/garment-maker goldsmith/jeweller
    miller/flour-maker brewer/beer-maker printer/typesetter
    """
)
INSTRUMENTS = _words(
    """
    cello flute harp oboe trumpet violin zither accordion bassoon clarinet guitar lute mandolin organ piano
    trombone banjo bagpipe dulcimer horn
    """
)
PRODUCTS = _words(
    """
    glass cheese clocks paper cider porcelain lace steel bicycles candles honey leather linen pottery rope
    salt soap sugar tiles toys umbrellas violins wool buttons mustard ink needles brushes carpets knives
    """
)
AWARD_KINDS = _words("Prize Medal Award")
COMPANY_ENDS = _words("Works Brothers Company Mills Union Workshop")
SCHOOL_KINDS = _words("College Academy Institute School")
TITLE_ADJECTIVES = _words(
    """
    Silent Golden Broken Distant Hidden Last Crooked Burning Frozen Empty Patient Wandering Painted Sleeping
    Hollow Restless Bitter Gentle Nameless Borrowed Faithful Crimson Narrow Secret
    """
)
TITLE_NOUNS = _words(
    """
    Harbour Garden Winter Mirror Letter Orchard River Lantern Bridge Island Tower Summer Shadow Window Road
    Stranger Bell Forest Kitchen Voyage Clock Staircase Meadow Station Candle Map Wedding Guest Lighthouse
    Promise
    """
)
