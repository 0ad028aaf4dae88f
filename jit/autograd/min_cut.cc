// Dinic's algorithm.
#include "jit/autograd/min_cut.h"

#include <algorithm>

namespace lutra {

int MinCut::add_node() {
  edges_.emplace_back();
  return int(edges_.size()) - 1;
}

void MinCut::add_edge(int from, int to, double capacity) {
  auto &out = edges_[size_t(from)], &in = edges_[size_t(to)];
  out.push_back({to, capacity, in.size()});
  in.push_back({from, 0, out.size() - 1});
}

bool MinCut::find_levels(int source, int sink) {
  level_.assign(edges_.size(), -1);
  level_[size_t(source)] = 0;
  std::vector<int> queue = {source};
  for (size_t i = 0; i < queue.size(); i++) {
    for (const Edge& e : edges_[size_t(queue[i])]) {
      if (e.left <= 0 || level_[size_t(e.to)] >= 0) continue;
      level_[size_t(e.to)] = level_[size_t(queue[i])] + 1;
      queue.push_back(e.to);
    }
  }
  return level_[size_t(sink)] >= 0;
}

// Pushes flow along one path of the levels. It does not recurse, since graphs are deep.
double MinCut::push(int sink, int source) {
  std::vector<Edge*> path;
  int at = source;
  while (at != sink) {
    auto& edges = edges_[size_t(at)];
    size_t& k = next_[size_t(at)];
    while (k < edges.size() && (edges[k].left <= 0 || level_[size_t(edges[k].to)] != level_[size_t(at)] + 1)) k++;
    if (k < edges.size()) {
      path.push_back(&edges[k]);
      at = edges[k].to;
    } else if (path.empty()) {
      return 0;
    } else {
      at = edges_[size_t(path.back()->to)][path.back()->back].to;
      path.pop_back();
      next_[size_t(at)]++;
    }
  }
  double flow = kInfinite;
  for (const Edge* e : path) flow = std::min(flow, e->left);
  for (Edge* e : path) {
    if (e->left < kInfinite) e->left -= flow;
    Edge& back = edges_[size_t(e->to)][e->back];
    if (back.left < kInfinite) back.left += flow;
  }
  return flow;
}

double MinCut::run(int source, int sink) {
  double total = 0;
  while (total < kInfinite && find_levels(source, sink)) {
    next_.assign(edges_.size(), 0);
    while (const double flow = push(sink, source)) {
      total += flow;
      if (total >= kInfinite) break;
    }
  }
  return total;
}

std::vector<bool> MinCut::behind(int sink) const {
  std::vector<bool> reached(edges_.size());
  reached[size_t(sink)] = true;
  std::vector<int> queue = {sink};
  for (size_t i = 0; i < queue.size(); i++) {
    for (const Edge& e : edges_[size_t(queue[i])]) {
      // the reverse edge leads here
      if (reached[size_t(e.to)] || edges_[size_t(e.to)][e.back].left <= 0) continue;
      reached[size_t(e.to)] = true;
      queue.push_back(e.to);
    }
  }
  return reached;
}

}  // namespace lutra
