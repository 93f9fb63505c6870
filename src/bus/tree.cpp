// SPDX-License-Identifier: Apache-2.0
#include "bus/tree.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "bus/codec.hpp"
#include "bus/names.hpp"

namespace virtguard::bus {

namespace {

/// A property of an object that shows a Subject.
template <class Subject>
struct Property {
    const char* name;
    const char* signature;
    bool is_const;
    sd_bus_property_get_t get;
    int (*append)(sd_bus_message*, const Subject&);
    bool (*is_same)(const Subject&, const Subject&);
};

enum class Change { signalled, never };

/// The property that Of makes of the subject.
template <class Subject, auto Of>
constexpr Property<Subject> property(const char* name, Change change = Change::signalled) {
    using Value = std::remove_cvref_t<decltype(Of(std::declval<const Subject&>()))>;
    return {
        .name = name,
        .signature = signature<Value>,
        .is_const = change == Change::never,
        .get =
            [](sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* subject,
               sd_bus_error*) { return append(reply, Of(*static_cast<const Subject*>(subject))); },
        .append = [](sd_bus_message* message,
                     const Subject& subject) { return append(message, Of(subject)); },
        .is_same = [](const Subject& a, const Subject& b) { return Of(a) == Of(b); }};
}

template <class Subject>
using Properties = std::vector<Property<Subject>>;

/// One of the quantities of what FiguresOf finds.
template <class Subject, auto FiguresOf, auto Column>
const core::Quantities& quantities(const Subject& subject) {
    return FiguresOf(subject).*Column;
}

/// The nine quantities of DESIGN section 1.
template <class Subject, auto FiguresOf>
void add_figures(Properties<Subject>& properties) {
    using core::Figures;
    const auto add = [&]<auto Column>(const char* name) {
        properties.push_back(property<Subject, quantities<Subject, FiguresOf, Column>>(name));
    };
    add.template operator()<&Figures::capacity>("Capacity");
    add.template operator()<&Figures::reserved>("Reserved");
    add.template operator()<&Figures::allocatable>("Allocatable");
    add.template operator()<&Figures::effective>("EffectiveCapacity");
    add.template operator()<&Figures::allocated>("Allocated");
    add.template operator()<&Figures::pending>("Pending");
    add.template operator()<&Figures::booked>("Booked");
    add.template operator()<&Figures::foreign>("Foreign");
    add.template operator()<&Figures::free>("Free");
}

Properties<Picture> manager_properties() {
    using P = Picture;
    Properties<P> all{
        property<P, [](const P& p) { return p.status.version; }>("Version", Change::never),
        property<P, [](const P& p) { return std::string(core::mode_text(p.status)); }>("Mode"),
        property<P, [](const P& p) { return p.status.state; }>("State"),
        property<P, [](const P& p) { return p.status.problems; }>("Problems")};
    add_figures<P, [](const P& p) -> const core::Figures& { return p.status.report.host; }>(all);
    all.insert(
        all.end(),
        {property<P, [](const P& p) { return p.status.report.overcommit; }>("Overcommit"),
         property<P, [](const P& p) { return p.status.report.over_capacity; }>("OverCapacity"),
         property<P, [](const P& p) { return p.schedulers; }>("AcceptedSchedulers"),
         property<P, [](const P& p) { return p.status.admitted; }>("DecisionsAdmitted"),
         property<P, [](const P& p) { return p.status.refused; }>("DecisionsRefused"),
         property<P, [](const P& p) { return p.status.would_refuse; }>("DecisionsWouldRefuse"),
         property<P, [](const P& p) { return p.status.snapshot; }>("SnapshotTimestamp"),
         property<P, [](const P& p) { return p.policy_files; }>("PolicyFiles")});
    return all;
}

Properties<core::NodeReport> node_properties() {
    using N = core::NodeReport;
    Properties<N> all{property<N, [](const N& n) { return static_cast<std::uint32_t>(n.id); }>(
                          "Id", Change::never),
                      property<N, [](const N& n) { return n.cpus.text(); }>("Cpus")};
    add_figures<N, [](const N& n) -> const core::Figures& { return n.figures; }>(all);
    return all;
}

Properties<DomainPicture> domain_properties() {
    using D = DomainPicture;
    return {property<D, [](const D& d) { return d.guest.name; }>("Name"),
            property<D, [](const D& d) { return d.guest.uuid.value_or(Uuid{}).text(); }>(
                "Uuid", Change::never),
            property<D, [](const D& d) { return d.guest.scheduler; }>("Scheduler"),
            property<D, [](const D& d) { return std::string(core::state_name(d.guest.state)); }>(
                "State"),
            property<D, [](const D& d) { return without_zeros(d.guest.demand); }>("Demand"),
            property<D, [](const D& d) { return d.pieces; }>("Pieces"),
            property<D, [](const D& d) { return std::optional(d.since); }>("Since")};
}

/// An interface with properties only, as sd-bus reads it: it points into what lives for ever.
template <class Subject>
class Interface {
  public:
    Interface(const char* name, Properties<Subject> properties)
        : name_(name), properties_(std::move(properties)) {
        vtable_.push_back(SD_BUS_VTABLE_START(0));
        for (const Property<Subject>& each : properties_)
            if (each.is_const)
                vtable_.push_back(SD_BUS_PROPERTY(each.name, each.signature, each.get, 0,
                                                  SD_BUS_VTABLE_PROPERTY_CONST));
            else
                vtable_.push_back(SD_BUS_PROPERTY(each.name, each.signature, each.get, 0,
                                                  SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE));

        vtable_.push_back(SD_BUS_VTABLE_END);
    }

    [[nodiscard]] const char* name() const { return name_; }
    [[nodiscard]] const sd_bus_vtable* vtable() const { return vtable_.data(); }

    /// As an object's entry in GetManagedObjects has it.
    int append(sd_bus_message* message, const Subject& subject) const {
        int r = sd_bus_message_open_container(message, SD_BUS_TYPE_DICT_ENTRY, "sa{sv}");
        if (r >= 0)
            r = sd_bus_message_append(message, "s", name_);
        if (r >= 0)
            r = sd_bus_message_open_container(message, SD_BUS_TYPE_ARRAY, "{sv}");
        for (auto each = properties_.begin(); r >= 0 && each != properties_.end(); ++each)
            r = append(message, subject, *each);
        if (r >= 0)
            r = sd_bus_message_close_container(message);
        return r < 0 ? r : sd_bus_message_close_container(message);
    }

    /// 1: a signal was sent; 0: nothing differs.
    int tell(sd_bus* bus, const char* path, const Subject& told, const Subject& now) const {
        std::vector<char*> names;
        for (const Property<Subject>& each : properties_)
            if (!each.is_same(told, now))
                names.push_back(const_cast<char*>(each.name)); // it is only read
        if (names.empty())
            return 0;
        names.push_back(nullptr);
        const int r = sd_bus_emit_properties_changed_strv(bus, path, name_, names.data());
        return r < 0 ? r : 1;
    }

  private:
    static int append(sd_bus_message* message, const Subject& subject,
                      const Property<Subject>& property) {
        int r = sd_bus_message_open_container(message, SD_BUS_TYPE_DICT_ENTRY, "sv");
        if (r >= 0)
            r = sd_bus_message_append(message, "s", property.name);
        if (r >= 0)
            r = sd_bus_message_open_container(message, SD_BUS_TYPE_VARIANT, property.signature);
        if (r >= 0)
            r = property.append(message, subject);
        if (r >= 0)
            r = sd_bus_message_close_container(message);
        return r < 0 ? r : sd_bus_message_close_container(message);
    }

    const char* name_;
    Properties<Subject> properties_;
    std::vector<sd_bus_vtable> vtable_;
};

const Interface<Picture>& manager() {
    static const Interface<Picture> interface(manager_interface, manager_properties());
    return interface;
}

/// The objects of one kind below a prefix.
template <class Subject>
struct Kind {
    const char* prefix;
    Interface<Subject> interface;
    std::map<std::string, Subject> Picture::*objects;
};

const Kind<core::NodeReport>& nodes() {
    static const Kind<core::NodeReport> kind{
        node_prefix, {node_interface, node_properties()}, &Picture::nodes};
    return kind;
}

const Kind<DomainPicture>& domains() {
    static const Kind<DomainPicture> kind{
        domain_prefix, {domain_interface, domain_properties()}, &Picture::domains};
    return kind;
}

template <auto KindOf>
int find_object(sd_bus*, const char* path, const char*, void* picture, void** found,
                sd_bus_error*) {
    auto& objects = static_cast<Picture*>(picture)->*KindOf().objects;
    const auto object = objects.find(path);
    if (object == objects.end())
        return 0;
    *found = &object->second;
    return 1;
}

/// sd-bus frees the array and its texts.
template <auto KindOf>
int list_objects(sd_bus*, const char*, void* picture, char*** paths, sd_bus_error*) {
    const auto& objects = static_cast<Picture*>(picture)->*KindOf().objects;
    char** list = static_cast<char**>(std::calloc(objects.size() + 1, sizeof(char*)));
    if (list == nullptr)
        return -ENOMEM;
    char** next = list;
    for (const auto& [path, object] : objects)
        *next++ = ::strdup(path.c_str());
    *paths = list;
    return 1;
}

template <auto KindOf>
int add_kind(sd_bus* bus, Picture& picture, std::vector<SlotPtr>& slots) {
    const auto& kind = KindOf();
    sd_bus_slot* slot = nullptr;
    int r = sd_bus_add_fallback_vtable(bus, &slot, kind.prefix, kind.interface.name(),
                                       kind.interface.vtable(), find_object<KindOf>, &picture);
    slots.emplace_back(slot);
    if (r < 0)
        return r;
    sd_bus_slot* lister = nullptr;
    r = sd_bus_add_node_enumerator(bus, &lister, kind.prefix, list_objects<KindOf>, &picture);
    slots.emplace_back(lister);
    return r;
}

/// A turn's share of the objects that are listed: a fifth of a millisecond of work.
constexpr int objects_per_turn = 16;

/// Objects of one kind, the next after a path. How many may still be appended, or a negative errno.
template <auto KindOf>
int append_kind(sd_bus_message* answer, const Picture& picture, std::string& path, int left) {
    const auto& kind = KindOf();
    const auto& objects = picture.*kind.objects;
    auto each = objects.upper_bound(path);
    for (; left > 0 && each != objects.end(); ++each, --left) {
        path = each->first;
        int r = sd_bus_message_open_container(answer, SD_BUS_TYPE_DICT_ENTRY, "oa{sa{sv}}");
        if (r >= 0)
            r = sd_bus_message_append(answer, "o", path.c_str());
        if (r >= 0)
            r = sd_bus_message_open_container(answer, SD_BUS_TYPE_ARRAY, "{sa{sv}}");
        if (r >= 0)
            r = kind.interface.append(answer, each->second);
        if (r >= 0)
            r = sd_bus_message_close_container(answer);
        if (r >= 0)
            r = sd_bus_message_close_container(answer);
        if (r < 0)
            return r;
    }
    return left;
}

/// Messages that may still be sent in this turn, until one cannot be.
class Budget {
  public:
    explicit Budget(int most) : left_(most) {}

    [[nodiscard]] bool has_more() const { return left_ > 0 && error_ >= 0; }
    [[nodiscard]] int error() const { return error_; }
    /// r: messages that were sent, or a negative errno.
    void spend(int r) {
        if (r < 0)
            error_ = r;
        else
            left_ -= r;
    }

  private:
    int left_;
    int error_ = 0;
};

/// Objects first that are gone: one may be there again under another path.
template <auto KindOf>
void tell_kind(sd_bus* bus, Picture& told_picture, const Picture& now_picture, Budget& budget) {
    const auto& kind = KindOf();
    auto& told = told_picture.*kind.objects;
    const auto& now = now_picture.*kind.objects;
    const char* interface = kind.interface.name();
    for (auto each = told.begin(); budget.has_more() && each != told.end();) {
        if (now.contains(each->first)) {
            ++each;
            continue;
        }
        const int r = sd_bus_emit_interfaces_removed(bus, each->first.c_str(), interface, nullptr);
        budget.spend(r < 0 ? r : 1);
        each = told.erase(each);
    }
    for (auto each = now.begin(); budget.has_more() && each != now.end(); ++each) {
        const auto& [path, object] = *each;
        const auto known = told.find(path);
        if (known == told.end()) {
            const int r = sd_bus_emit_interfaces_added(bus, path.c_str(), interface, nullptr);
            budget.spend(r < 0 ? r : 1);
            told.emplace(path, object);
        } else if (known->second != object) {
            budget.spend(kind.interface.tell(bus, path.c_str(), known->second, object));
            known->second = object;
        }
    }
}

int emit_over_capacity(sd_bus* bus, const std::vector<core::Resource>& over) {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_signal(bus, &raw, manager_path, manager_interface,
                                      "OverCapacityChanged");
    const MessagePtr signal(raw);
    if (r >= 0)
        r = append(raw, over);
    if (r >= 0)
        r = sd_bus_send(bus, raw, nullptr);
    return r < 0 ? r : 1;
}

/// The host's own properties: few, whatever the host is.
void tell_host(sd_bus* bus, Picture& told, const Picture& now, Budget& budget) {
    const std::vector<core::Resource>& over = now.status.report.over_capacity;
    if (told.status.report.over_capacity != over)
        budget.spend(emit_over_capacity(bus, over));
    budget.spend(manager().tell(bus, manager_path, told, now));
    told.status = now.status;
    told.schedulers = now.schedulers;
    told.policy_files = now.policy_files;
}

} // namespace

Result<std::vector<SlotPtr>> add_tree(sd_bus* bus, Picture& picture) {
    std::vector<SlotPtr> slots;
    sd_bus_slot* slot = nullptr;
    int r = sd_bus_add_object_manager(bus, &slot, manager_path);
    slots.emplace_back(slot);
    if (r >= 0) {
        sd_bus_slot* host = nullptr;
        r = sd_bus_add_object_vtable(bus, &host, manager_path, manager_interface,
                                     manager().vtable(), &picture);
        slots.emplace_back(host);
    }
    if (r >= 0)
        r = add_kind<nodes>(bus, picture, slots);
    if (r >= 0)
        r = add_kind<domains>(bus, picture, slots);
    if (r < 0)
        return failed("objects", r);
    return slots;
}

// The paths of domains come before those of nodes.
int append_objects(sd_bus_message* answer, const Picture& picture, std::string& path) {
    int left = append_kind<domains>(answer, picture, path, objects_per_turn);
    if (left > 0)
        left = append_kind<nodes>(answer, picture, path, left);
    return left < 0 ? left : left == 0 ? 1 : 0;
}

Result<bool> tell_changes(sd_bus* bus, Picture& told, const Picture& now, int most) {
    Budget budget(most);
    tell_host(bus, told, now, budget);
    tell_kind<nodes>(bus, told, now, budget);
    tell_kind<domains>(bus, told, now, budget);
    if (budget.error() < 0)
        return failed("signals", budget.error());
    return budget.has_more();
}

} // namespace virtguard::bus
