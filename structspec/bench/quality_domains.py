"""What the extraction tasks are about: six kinds of things, each with a subject and its fields.

Every text starts with a subject sentence; the other fields are a sentence each, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.bench.quality_fields import (
    Field,
    amount,
    day,
    flag,
    nested,
    one_of,
    several,
    text,
    whole,
)


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of thing: `subject` is in every task, some of the others are."""

    name: str
    subject: Field
    others: Sequence[Field]


# some need escapes or more than ASCII: a style must not make those harder
_PEOPLE = (
    *("Anna Weber", "James Carter", "Maria Lopez", "Zoë Müller", "Tom O'Brien", "Li Wei"),
    *("José Álvarez", "Emma Johnson", "David Kim", "Sarah Miller", "Peter Novak", "Grace Hall"),
)
_CITIES = (
    *("London", "Chicago", "Madrid", "Zürich", "New York", "Boston", "Oslo", "San Diego"),
    *("Dublin", "Toronto", "São Paulo", "Paris"),
)
_STREETS = (
    *("Garden Street", "Main Street", "Oak Avenue", "Mill Lane", "King's Road", "Hill Drive"),
    *("Park Avenue", "Lake View Road"),
)
_COUNTRIES = ("Germany", "Canada", "Spain", "Norway", "Ireland", "Brazil", "Japan", "Chile")
_LANGUAGES = ("German", "English", "Spanish", "French", "Japanese", "Dutch", "Korean")
_PRODUCTS = (
    *("desk lamp", "coffee grinder", "27-inch monitor", "steel water bottle", "garden hose"),
    *("wireless mouse", '12" cast iron pan', "travel backpack", "electric kettle", "yoga mat"),
)
_DISHES = (
    *("tomato soup", "lemon cake", "fish tacos", "crème brûlée", "mushroom risotto", "apple pie"),
    *("chicken curry", "bean salad"),
)
_INGREDIENTS = (
    *("flour", "butter", "eggs", "garlic", "onions", "rice", "olive oil", "sugar", "basil"),
    *("lemons", "salt"),
)
_COLORS = ("red", "black", "white", "green", "blue", "silver")

_STREET = text("street", _STREETS, "{}")
_CITY = text("city", _CITIES, "{}")

DOMAINS = (
    Domain(
        "person",
        text("name", _PEOPLE, "This is about {}.", "Please meet {}.", "We spoke with {} today."),
        (
            whole("age", 18, 90, "The age is {}.", "Age: {} years."),
            text("city", _CITIES, "Home is {}.", "The family lives in {}."),
            flag("is_married", "They are married.", "They are not married."),
            several("languages", _LANGUAGES, "They speak {}.", "Languages spoken: {}."),
            day("birthday", "The birthday is {}.", "Born on {}."),
            one_of(
                "department",
                ("sales", "engineering", "finance", "support"),
                "They work in the {} department.",
            ),
            nested(
                "address",
                (whole("number", 1, 250, "{}"), _STREET),
                "Mail goes to {number} {street}.",
            ),
        ),
    ),
    Domain(
        "order",
        text("customer", _PEOPLE, "{} placed an order.", "We received an order from {}."),
        (
            whole("order_number", 1000, 99999, "The order number is {}.", "It is order no. {}."),
            text("product", _PRODUCTS, "They want the {}.", "The item is one {}."),
            whole("quantity", 2, 40, "The quantity is {}.", "They need {} pieces."),
            amount("total", 5, 900, "The total is {} dollars.", "It costs ${} in all."),
            flag("is_paid", "The order has been paid.", "The order has not been paid yet."),
            one_of(
                "status", ("new", "packed", "shipped", "delivered"), "The current status is {}."
            ),
            day("order_date", "It was placed on {}.", "The order date is {}."),
            nested("ship_to", (_STREET, _CITY), "Ship it to {street} in {city}."),
        ),
    ),
    Domain(
        "recipe",
        text("title", _DISHES, "Here is how to make {}.", "Today we cook {}."),
        (
            several("ingredients", _INGREDIENTS, "You need {}.", "The ingredients are {}."),
            whole("servings", 1, 12, "It serves {} people.", "This makes {} servings."),
            whole("minutes", 10, 180, "It takes {} minutes.", "It is ready in {} minutes."),
            one_of("difficulty", ("easy", "medium", "hard"), "The difficulty is {}."),
            flag("is_vegetarian", "It is vegetarian.", "It is not vegetarian."),
            text("author", _PEOPLE, "The recipe is by {}."),
            amount("cost", 3, 40, "It costs about {} dollars."),
        ),
    ),
    Domain(
        "appointment",
        text("patient", _PEOPLE, "{} has an appointment.", "We booked a visit for {}."),
        (
            day("date", "It is on {}.", "The date is {}."),
            text("time", ("08:30", "09:15", "11:00", "14:45", "16:20"), "It starts at {}."),
            text("doctor", ("Dr. Lee", "Dr. Santos", "Dr. Brandt", "Dr. Okafor"), "It is with {}."),
            one_of("reason", ("checkup", "vaccination", "surgery", "advice"), "The reason is {}."),
            whole("room", 1, 400, "The room is {}.", "Go to room {}."),
            flag("is_first_visit", "This is the first visit.", "This is not the first visit."),
            several("documents", ("passport", "X-ray", "insurance card", "referral"), "Bring {}."),
            nested("clinic", (_STREET, _CITY), "The clinic is at {street} in {city}."),
        ),
    ),
    Domain(
        "address",
        text("recipient", _PEOPLE, "Send the parcel to {}.", "This letter is for {}."),
        (
            text("street", _STREETS, "The street is {}.", "It is on {}."),
            whole("house_number", 1, 300, "The house number is {}."),
            text("city", _CITIES, "The city is {}.", "It is in {}."),
            text("country", _COUNTRIES, "The country is {}."),
            text("postal_code", ("10115", "SW1A 1AA", "02139", "28004", "M5V 2T6"), "Postcode {}."),
            flag("is_business", "It is a business address.", "It is not a business address."),
            one_of("delivery", ("standard", "express", "overnight"), "Use {} delivery."),
        ),
    ),
    Domain(
        "product",
        text("name", _PRODUCTS, "New in the shop: {}.", "We now sell this product: {}."),
        (
            amount("price", 2, 500, "The price is {} dollars.", "It costs ${}."),
            whole("stock", 0, 900, "There are {} in stock.", "We have {} of them."),
            several("colors", _COLORS, "It comes in {}.", "Available colors are {}."),
            amount("weight_kg", 1, 20, "It weighs {} kg."),
            one_of("category", ("home", "kitchen", "sports", "office"), "The category is {}."),
            flag("is_refundable", "It can be refunded.", "It cannot be refunded."),
            day("release_date", "It was released on {}.", "The release date is {}."),
            nested(
                "maker",
                (text("company", ("Acme", "Norwind", "Bluepeak"), "{}"), _CITY),
                "It is made by {company} in {city}.",
            ),
        ),
    ),
)
