class Group:
    def __init__(self, people):
        self.people = people


class Line:
    """People who wait, and who of them is let in."""

    def __init__(self, chosen):
        self.most = chosen.most_tokens
        self.waiting_people = []

    def stand(self, person):
        self.waiting_people.append(person)

    def compose(self, current):
        people, used = [], 0
        for person in self.waiting_people:
            used += len(person.tokens)
            if used > self.most:
                break
            people.append(person)
        self.waiting_people = self.waiting_people[len(people) :]
        return Group(people) if people else None


class ShortLine(Line):
    def stand(self, person):
        if len(self.waiting_people) < 8:
            super().stand(person)
